// Imported first. Pages that the heap already has cannot be moved together; V8 hardly ever
// reverts a decision to pretenure; and the flags for the start have to be set before other
// modules run their functions: V8 adapts to what a program does for long, but a start does most
// things once, and keeps what the start creates.
import { setFlagsFromString } from 'node:v8';
import { keepHeapPagesTogether } from '@cloudless/app-kit/heap-pages';

/**
 * Turns off pretenuring: V8 creates objects in the young generation, whatever happened to earlier
 * objects of the same line of code. By default, compiled code creates objects in the old generation
 * where at least 85 % of the earlier ones have stayed. Here, the same line creates records that
 * stay and records that the next change replaces. Replaced records in the old generation stay until
 * the next collection of this generation, and keep every younger object that they refer to.
 */
const NO_PRETENURING = '--no-allocation-site-pretenuring';

/** Flags of V8 during the start, each with the flag that restores the default. */
const START_FLAGS = [
  // Bytes of code that a function runs, loops counted, before V8 considers optimising it: eight
  // times the default. Most of what the compiler would optimise has done its work by then.
  { start: '--interrupt-budget=540672', restored: '--interrupt-budget=67584' },
  // Records stay, so a collection of the old generation frees next to nothing: the heap may grow to
  // ten times its size between two collections.
  { start: '--heap-growing-percent=900', restored: '--heap-growing-percent=0' },
  // Until calls are served, one pause costs less than incremental marking with its write barriers.
  { start: '--no-incremental-marking', restored: '--incremental-marking' },
] as const;

keepHeapPagesTogether();
setFlagsFromString(NO_PRETENURING);

/** Other versions of V8 have other compilers and collectors: the start flags are not for these. */
const hasStartFlags = process.versions.v8.startsWith('11.');

if (hasStartFlags) for (const { start } of START_FLAGS) setFlagsFromString(start);

/**
 * Ends the start: from now on V8 optimises functions that serve calls as early as usual, and
 * collects garbage without long pauses. Pretenuring stays off.
 */
export function endStartFlags(): void {
  if (hasStartFlags) for (const { restored } of START_FLAGS) setFlagsFromString(restored);
}
