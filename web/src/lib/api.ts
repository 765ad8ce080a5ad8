/** Requests to the service, with the types of its own description. */

import createClient from "openapi-fetch";
import type { components, paths } from "./api-types.d.ts";

type Schemas = components["schemas"];

export type Job = Schemas["JobView"];
export type JobState = Schemas["JobState"];
export type JobProgress = Schemas["JobProgress"];
export type JobChange = Schemas["JobChange"];
export type JobSpec = Schemas["JobSpec"];
export type JobOptions = Schemas["JobOptions"];
export type Policy = Schemas["Policy"];
export type HistoryRecord = Schemas["HistoryRecord"];
export type Point = Schemas["Point"];
export type LiveCurve = Schemas["LiveCurve"];
export type CallerView = Schemas["CallerView"];
export type HostView = Schemas["HostView"];
export type CapView = Schemas["CapView"];
export type Cap = Schemas["Cap"];
export type EntryView = Schemas["EntryView"];
export type LogLine = Schemas["LogLine"];
export type FailingFiles = Schemas["FailingFiles"];
export type DeedKind = Schemas["DeedKind"];
export type JobDeed = Schemas["JobDeed"];
export type Problem = Schemas["Problem"];
export type Stage = Schemas["StageFigures"];
export type PathFigures = Schemas["PathFigures"];
export type Transfer = Schemas["Snapshot"];
export type RunReport = Schemas["RunReport"];
export type JobFile = Schemas["JobFileView"];

/** Why a request failed: the service refused it, or did not answer. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string | null;
  readonly hint: string | null;

  constructor(status: number, message: string, code: string | null = null, hint: string | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }

  /** One line for people. */
  get line(): string {
    return this.hint ? `${this.message}: ${this.hint}` : this.message;
  }
}

/** Called when the service answers that nobody is signed in any more. */
export const signedOut = { call: () => {} };

export const client = createClient<paths>({
  baseUrl: "",
  credentials: "same-origin",
  fetch: async (request) => {
    try {
      return await fetch(request);
    } catch {
      throw new ApiError(0, "the service does not answer");
    }
  },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Returns the content of an answer; throws an [ApiError] if the service refused the request. */
export async function got<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (response.ok) return data as T;
  if (response.status === 401) signedOut.call();
  const problem = error as Partial<Problem> | undefined;
  throw new ApiError(
    response.status,
    problem?.detail ?? problem?.title ?? `the service answered with status ${response.status}`,
    problem?.code ?? null,
    problem?.hint ?? null,
  );
}

/** One line for people about whatever was thrown. */
export function lineOf(error: unknown): string {
  if (error instanceof ApiError) return error.line;
  return error instanceof Error ? error.message : String(error);
}
