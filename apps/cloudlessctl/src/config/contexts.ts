import { Document, isMap, parseDocument } from 'yaml';
import { definedFields } from '@cloudless/base';
import { CliFailure, ExitCode } from '../call/failure.js';
import type { CliIo, Files } from '../io/io.js';
import { DNS_LABEL_RULE, isDnsLabel } from '../manifest/parse-manifest.js';
import { YamlReader, formatProblem } from '../manifest/yaml-reader.js';
import type { Entry } from '../manifest/yaml-reader.js';

/** A context: the address of a cluster and the default namespace. */
export interface Context {
  /** URL of the coordinator, see {@link checkServer}. Default: `http://127.0.0.1:8080`. */
  readonly server?: string;
  /** Default: `default`. */
  readonly namespace?: string;
}

/** The content of the configuration file. */
export interface Contexts {
  /** Path of the file; the file may not exist. */
  readonly path: string;
  /** Name of the current context. The file may not contain this context. */
  readonly current?: string;
  /** The contexts by name. */
  readonly contexts: ReadonlyMap<string, Context>;
}

/**
 * Returns the path of the configuration file: `$CLOUDLESS_CONFIG`, else `cloudless/config.yaml`
 * below `$XDG_CONFIG_HOME` or `~/.config`.
 */
export function getConfigPath(env: CliIo['env']): string {
  if (env['CLOUDLESS_CONFIG']) return env['CLOUDLESS_CONFIG'];
  const base = env['XDG_CONFIG_HOME'] || `${env['HOME'] || ''}/.config`;
  return `${base}/cloudless/config.yaml`;
}

/**
 * Reads the configuration file; a missing file is an empty configuration.
 * @throws {@link CliFailure} with exit code 2 that lists all problems of the file.
 */
export async function readContexts(files: Files, path: string): Promise<Contexts> {
  const bytes = await readIfPresent(files, path);
  if (bytes === undefined) return { path, contexts: new Map() };
  const parsed = parseContexts(path, bytes);
  if ('problems' in parsed) throw new CliFailure(ExitCode.usage, parsed.problems.join('\n'));
  return parsed.contexts;
}

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

function readContext(reader: YamlReader, name: string, fields: readonly Entry[]): Context {
  const context: { server?: string; namespace?: string } = {};
  for (const entry of fields) {
    const path = `contexts.${name}.${entry.key}`;
    if (entry.key !== 'server' && entry.key !== 'namespace') {
      reader.reportUnknownKey(entry, path, ['server', 'namespace']);
      continue;
    }
    const text = reader.readText(entry.value, entry.keyNode, path);
    const problem =
      text === undefined
        ? undefined
        : entry.key === 'server'
          ? checkServer(text)
          : checkNamespace(text);
    if (problem !== undefined) reader.report(entry.value, path, problem);
    if (text !== undefined) context[entry.key] = text;
  }
  return context;
}

/**
 * Validates the address of a coordinator: `http` or `https`, with a host and without path, query
 * and user name.
 * @returns The problem; undefined when the address is valid.
 */
export function checkServer(server: string): string | undefined {
  const url = URL.canParse(server) ? new URL(server) : undefined;
  const isBaseUrl =
    url !== undefined &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.pathname === '/' &&
    url.search === '';
  return isBaseUrl && url.hostname !== '' && url.username === ''
    ? undefined
    : `expected an address such as http://127.0.0.1:8080, got ${JSON.stringify(server)}`;
}

/**
 * Validates the name of a namespace.
 * @returns The problem; undefined when the name is valid.
 */
export function checkNamespace(namespace: string): string | undefined {
  return isDnsLabel(namespace)
    ? undefined
    : `expected ${DNS_LABEL_RULE}, got ${JSON.stringify(namespace)}`;
}

/**
 * Edits the configuration file and keeps its comments. Creates a missing file.
 * @param edit - Changes the YAML document in place.
 * @throws {@link CliFailure} when the present file is invalid or cannot be read.
 */
export async function editContexts(
  files: Files,
  path: string,
  edit: (document: Document) => void,
): Promise<void> {
  await readContexts(files, path);
  const bytes = await readIfPresent(files, path);
  const document: Document =
    bytes === undefined ? new Document({}) : parseDocument(new TextDecoder().decode(bytes));
  if (!isMap(document.contents))
    document.contents = document.createNode({}) as typeof document.contents;
  edit(document);
  await files.write(path, document.toString());
}

/** Reads a file; undefined when the file does not exist. */
async function readIfPresent(files: Files, path: string): Promise<Uint8Array | undefined> {
  try {
    return await files.read(path);
  } catch (reason) {
    if (reason instanceof Error && 'code' in reason && reason.code === 'ENOENT') return undefined;
    const message = reason instanceof Error ? reason.message : String(reason);
    throw new CliFailure(ExitCode.error, `cannot read the configuration ${path}: ${message}`, {
      cause: reason,
    });
  }
}
