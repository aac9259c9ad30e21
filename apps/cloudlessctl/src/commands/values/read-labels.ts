import type { LocalInvocation } from '../../command-tree.js';
import { parsePairs } from '../../flags/flag-values.js';
import { getListOption } from '../options.js';

/** Applies `--label` to the current labels. */
export function readLabels(
  invocation: LocalInvocation,
  current: Readonly<Record<string, string>>,
): Record<string, string> {
  const labels = { ...current };
  for (const { key, value } of parsePairs('--label', getListOption(invocation, 'label'))) {
    if (value === undefined) delete labels[key];
    else labels[key] = value;
  }
  return labels;
}
