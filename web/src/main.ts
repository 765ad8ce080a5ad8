import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { readTheme, showTheme } from "./lib/theme.ts";

showTheme(readTheme());

mount(App, { target: document.getElementById("page")! });
