import { diffSpecs, type ConfigRef, type SecretRef, type WorkloadSpec } from '@cloudless/api';

/** Most changes of one version; more do not help a reader. */
const MAX_CHANGES = 20;
/** Most characters of a value. Longer values are left out. */
const MAX_VALUE = 40;

/**
 * Describes what differs between two replica templates, in the order of the fields: `image nginx:1
 * -> nginx:2`, `env["V"] +` for an added, `env["V"] -` for a removed, and `args changed` for a
 * longer value. Empty without an older template, and for equal templates.
 */
export function describeTemplateChanges(
  before: WorkloadSpec | undefined,
  after: WorkloadSpec | undefined,
): string[] {
  if (before === undefined || after === undefined) return [];
  const changes = diffSpecs(before, after).flatMap((change) => {
    if (change.path === 'secrets' || change.path === 'configs')
      return describeRefChanges(change.path, before[change.path], after[change.path]);
    const path = change.path.replaceAll(/_[a-z]/g, (match) => match.slice(1).toUpperCase());
    if (change.before === undefined) return `${path} +`;
    if (change.after === undefined) return `${path} -`;
    const values = [change.before, change.after].map(formatValue);
    return values.some((value) => value.length > MAX_VALUE)
      ? `${path} changed`
      : `${path} ${values.join(' -> ')}`;
  });
  const hidden = changes.length - MAX_CHANGES;
  return hidden > 0 ? [...changes.slice(0, MAX_CHANGES), `${hidden} more`] : changes;
}

/** Describes the changed references: `secrets["db"].version 3 -> 4`, `secrets["db"] +`. */
function describeRefChanges(
  path: 'secrets' | 'configs',
  before: readonly (SecretRef | ConfigRef)[],
  after: readonly (SecretRef | ConfigRef)[],
): string[] {
  const names = new Set([...before, ...after].map(({ name }) => name));
  return [...names].flatMap((name) => {
    const subject = `${path}[${JSON.stringify(name)}]`;
    const was = before.find((ref) => ref.name === name);
    const is = after.find((ref) => ref.name === name);
    if (was === undefined) return [`${subject} +`];
    if (is === undefined) return [`${subject} -`];
    const versions =
      was.version === is.version ? [] : [`${subject}.version ${was.version} -> ${is.version}`];
    const isSame = JSON.stringify({ ...was, version: 0 }) === JSON.stringify({ ...is, version: 0 });
    return [...versions, ...(isSame ? [] : [`${subject} changed`])];
  });
}

function formatValue(value: unknown): string {
  if (typeof value === 'string') return value === '' ? '""' : value;
  return Array.isArray(value) ? value.map(formatValue).join(' ') : JSON.stringify(value);
}

/** Returns a summary of a template in one line: its image, or its command line. */
export function summarizeTemplate(spec: WorkloadSpec): string {
  const words = spec.image !== '' ? [spec.image] : [...spec.command, ...spec.args];
  const text = words.join(' ');
  return text.length > MAX_SUMMARY ? `${text.slice(0, MAX_SUMMARY - 1)}…` : text;
}

/** Most characters of a summary, so that it fits into a table column. */
const MAX_SUMMARY = 80;
