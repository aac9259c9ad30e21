import type { FaultyRuntime } from './faulty-runtimes.js';
import type { KnownBug } from './known-bug.js';

/** Formats a row of the first table of docs/bug-catalogue.md. */
export function toWorldRow({ name, story, injection, plan, checker, seed }: KnownBug): string {
  const faults = Object.entries(plan.weights).map(([kind, weight]) => `${kind} ${weight}`);
  return `| ${name} | ${story} | ${injection} | ${faults.join(', ') || 'none'} | ${seed} | ${checker} |`;
}

/** Formats a row of the second table of docs/bug-catalogue.md. */
export function toRuntimeRow({ name, story, injection, cases }: FaultyRuntime): string {
  return `| ${name} | ${story} | ${injection} | ${cases.join('; ')} |`;
}
