// Imported first, before the modules whose functions run once: most of what the optimising compiler
// of Node.js does at the start is for functions that have done their work by then.
import { setFlagsFromString } from 'node:v8';

/** Bytes of code that a function runs, loops counted, before V8 11 considers optimising it. */
const DEFAULT_BYTES = 67_584;
const START_BYTES = 8 * DEFAULT_BYTES;

setBudget(START_BYTES);

/** Ends the start: from now on functions that serve calls are optimised as early as usual. */
export function restoreCompilerBudget(): void {
  setBudget(DEFAULT_BYTES);
}

/** Other versions of V8 have other compilers and keep their budget. */
function setBudget(bytes: number): void {
  if (process.versions.v8.startsWith('11.')) setFlagsFromString(`--interrupt-budget=${bytes}`);
}
