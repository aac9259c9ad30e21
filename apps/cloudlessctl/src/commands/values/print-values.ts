import { CliFailure, ExitCode, createUsageFailure } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import { formatCount } from '../../output/human.js';
import { suggestKnown } from '../../suggest.js';
import type { Values } from '../../value-rules.js';

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
 * Writes each value to a file of its key, with mode 0600, in a directory that is created with mode
 * 0700.
 * @throws {@link CliFailure} with exit code 2 when one of the files exists; no file is written then.
 */
export async function writeValues(
  session: CliSession,
  values: Values,
  directory: string,
): Promise<void> {
  const { files } = session.io;
  const paths = Object.keys(values)
    .sort()
    .map((key) => ({ key, path: `${directory.replace(/\/+$/, '')}/${key}` }));
  for (const { path } of paths) {
    if (await files.exists(path))
      throw createUsageFailure(`--out-dir: ${path} exists already; choose another directory`);
  }
  for (const { key, path } of paths)
    await files.replaceSecret(path, values[key] ?? new Uint8Array());
  await session.printNotice(`wrote ${formatCount(paths.length, 'file')} to ${directory}`);
}
