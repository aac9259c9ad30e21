import type { FaultyRuntime } from './faulty-runtimes.js';
import type { MuseumPiece } from './museum-piece.js';

/** Formats a row of the first table of docs/bug-catalogue.md. */
export function toWorldRow({ name, story, plant, plan, checker, seed }: MuseumPiece): string {
  const faults = Object.entries(plan.weights).map(([kind, weight]) => `${kind} ${weight}`);
  return `| ${name} | ${story} | ${plant} | ${faults.join(', ') || 'none'} | ${seed} | ${checker} |`;
}

/** Formats a row of the second table of docs/bug-catalogue.md. */
export function toRuntimeRow({ name, story, plant, cases }: FaultyRuntime): string {
  return `| ${name} | ${story} | ${plant} | ${cases.join('; ')} |`;
}
