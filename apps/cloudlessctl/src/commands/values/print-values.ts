import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatCount } from '../../output/human.js';
import { suggestKnown } from '../../suggest.js';
import { findValueProblem, type Values } from '../../value-rules.js';

/**
 * Writes the value of a key to standard output, byte for byte.
 * @throws {@link CliFailure} with exit code 3 when there is no such key.
 */
export async function printKey(session: CliSession, values: Values, key: string): Promise<void> {
  const value = Object.hasOwn(values, key) ? values[key] : undefined;
  if (value === undefined) {
    const keys = Object.keys(values).sort();
    throw new CliFailure(
      ExitCode.notFound,
      `there is no key ${JSON.stringify(key)}${suggestKnown(key, keys, `the keys are ${keys.join(', ')}`)}`,
    );
  }
  await session.print(value);
}

/**
 * Checks that `--out-dir` can be a directory, before a read that cannot be repeated.
 * @throws {@link CliFailure} with exit code 2 when the path is a file.
 */
export async function checkOutDirectory({ io }: CliSession, directory: string): Promise<void> {
  const isFile =
    (await io.files.exists(directory)) && (await io.files.list(directory)) === undefined;
  if (isFile) throw createUsageFailure(`--out-dir: ${directory} is a file; name a directory`);
}

/**
 * Writes each value to a file of its key, with mode 0600, in a directory that is created with mode
 * 0700. No file is written unless all can be.
 * @param replaces - True: files that exist are replaced. Default: false.
 * @throws {@link CliFailure} with exit code 2 when one of the files exists and `replaces` is false,
 *   and with exit code 1 when the files cannot be written.
 */
export async function writeValues(
  session: CliSession,
  values: Values,
  directory: string,
  { replaces = false }: { readonly replaces?: boolean } = {},
): Promise<void> {
  const { files } = session.io;
  // A key is the name of a file, so a coordinator must not choose a path with it.
  const problem = findValueProblem(values);
  if (problem !== undefined)
    throw new CliFailure(ExitCode.error, `the coordinator returned wrong values: ${problem}`);
  const paths = Object.keys(values)
    .sort()
    .map((key) => ({ key, path: `${directory.replace(/\/+$/, '')}/${key}` }));
  for (const { path } of replaces ? [] : paths) {
    if (await files.exists(path))
      throw createUsageFailure(
        `--out-dir: ${path} exists already; choose another directory, or replace the files with --force`,
      );
  }
  const contents = new Map(paths.map(({ key, path }) => [path, values[key] ?? new Uint8Array()]));
  try {
    await files.replaceSecrets(contents);
  } catch (reason) {
    const message = reason instanceof Error ? reason.message : String(reason);
    throw new CliFailure(ExitCode.error, `--out-dir: ${message}`, { cause: reason });
  }
  await session.printNotice(`wrote ${formatCount(paths.length, 'file')} to ${directory}`);
}
