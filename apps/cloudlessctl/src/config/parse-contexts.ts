import { definedFields } from '@cloudless/base';
import { YamlReader, formatProblem } from '../manifest/yaml-reader.js';
import type { Entry } from '../manifest/yaml-reader.js';
import { checkNamespace, checkServer } from './context.js';
import type { Context, Contexts } from './context.js';

/**
 * Parses a configuration file. Unknown keys are errors, because a misspelt `server` would send
 * commands to the wrong cluster.
 * @param path - Path of the file, for messages.
 * @returns The contexts, or the problems as lines for the user.
 */
export function parseContexts(
  path: string,
  bytes: Uint8Array,
): { readonly contexts: Contexts } | { readonly problems: readonly string[] } {
  const reader = new YamlReader(path, bytes);
  const [document, more] = reader.documents;
  if (more !== undefined) reader.report(more.contents, '', 'expected one document');
  const contexts = new Map<string, Context>();
  let current: string | undefined;
  if (reader.problems.length === 0 && document !== undefined && document.contents !== null) {
    for (const entry of reader.readEntries(document, document.contents, null, '') ?? []) {
      if (entry.key === 'current') current = reader.readText(entry.value, entry.keyNode, 'current');
      else if (entry.key === 'contexts') {
        for (const item of reader.readEntries(document, entry.value, entry.keyNode, 'contexts') ??
          []) {
          const fields =
            reader.readEntries(document, item.value, item.keyNode, `contexts.${item.key}`) ?? [];
          contexts.set(item.key, readContext(reader, item.key, fields));
        }
      } else reader.reportUnknownKey(entry, entry.key, ['current', 'contexts']);
    }
  }
  if (reader.problems.length > 0) return { problems: reader.problems.map(formatProblem) };
  return { contexts: { path, contexts, ...definedFields({ current }) } };
}

const KEYS = ['server', 'namespace', 'identityDir', 'tokenFile', 'caFile'] as const;

function readContext(reader: YamlReader, name: string, fields: readonly Entry[]): Context {
  const context: { -readonly [Key in keyof Context]: Context[Key] } = {};
  for (const entry of fields) {
    const path = `contexts.${name}.${entry.key}`;
    const key = KEYS.find((known) => known === entry.key);
    if (key === undefined) {
      reader.reportUnknownKey(entry, path, KEYS);
      continue;
    }
    const text = reader.readText(entry.value, entry.keyNode, path);
    const problem = text === undefined ? undefined : CHECKS[key](text);
    if (problem !== undefined) reader.report(entry.value, path, problem);
    if (text !== undefined) context[key] = text;
    if (context.identityDir !== undefined && context.tokenFile !== undefined)
      reader.report(entry.value, path, 'expected identityDir or tokenFile, not both');
  }
  return context;
}

const checkPath = (path: string): string | undefined =>
  path === '' ? 'expected a path' : undefined;

const CHECKS: Readonly<Record<(typeof KEYS)[number], (text: string) => string | undefined>> = {
  server: checkServer,
  namespace: checkNamespace,
  identityDir: checkPath,
  tokenFile: checkPath,
  caFile: checkPath,
};
