import type { Document } from 'yaml';
import { errorCodeOf } from '@cloudless/base';
import { CliFailure, ExitCode } from '../call/failure.js';
import type { CliIo, Files } from '../io/io.js';
import type { Contexts } from './context.js';

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
  // Loaded only for a file that exists, because the YAML parser is large.
  const { parseContexts } = await import('./parse-contexts.js');
  const parsed = parseContexts(path, bytes);
  if ('problems' in parsed) throw new CliFailure(ExitCode.usage, parsed.problems.join('\n'));
  return parsed.contexts;
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
  // A module of our own: in a bundle, import() of a CommonJS package has only a default export.
  const { editDocument } = await import('./edit-document.js');
  await files.write(path, editDocument(bytes, edit));
}

/** Reads a file; undefined when the file does not exist. */
async function readIfPresent(files: Files, path: string): Promise<Uint8Array | undefined> {
  try {
    return await files.read(path);
  } catch (reason) {
    if (errorCodeOf(reason) === 'ENOENT') return undefined;
    const message = reason instanceof Error ? reason.message : String(reason);
    throw new CliFailure(ExitCode.error, `cannot read the configuration ${path}: ${message}`, {
      cause: reason,
    });
  }
}
