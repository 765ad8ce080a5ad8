/** The last values of a curve, one a second. */
export class Ring {
  readonly values: Float64Array;
  readonly capacity: number;
  #next = 0;
  #length = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.values = new Float64Array(capacity);
  }

  get length(): number {
    return this.#length;
  }

  push(value: number): void {
    this.values[this.#next] = value;
    this.#next = (this.#next + 1) % this.capacity;
    this.#length = Math.min(this.#length + 1, this.capacity);
  }

  /** Replaces all values by these, the newest last. */
  fill(values: readonly number[]): void {
    this.#next = 0;
    this.#length = 0;
    for (const value of values) this.push(value);
  }

  /** The value at this distance from the oldest one. */
  at(index: number): number {
    const first = this.#next - this.#length + this.capacity;
    return this.values[(first + index) % this.capacity]!;
  }

  get last(): number {
    return this.#length === 0 ? 0 : this.at(this.#length - 1);
  }

  max(): number {
    let most = 0;
    for (let index = 0; index < this.#length; index += 1) most = Math.max(most, this.at(index));
    return most;
  }

  toArray(): number[] {
    return Array.from({ length: this.#length }, (_, index) => this.at(index));
  }
}
