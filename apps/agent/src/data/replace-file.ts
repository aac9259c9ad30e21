import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { errorCodeOf } from '@cloudless/base';

/**
 * Writes a private file, whole or not at all. Writes nothing when the file has this text already, so
 * that an agent with unchanged settings starts on a full disk. A failed write leaves no draft.
 * @param options - `flush`: the text is on disk when the function returns. Default: false.
 * @throws errors of the file system unchanged.
 */
export function replaceFileSync(
  file: string,
  text: string,
  { flush = false }: { readonly flush?: boolean } = {},
): void {
  if (readIfPresent(file) === text) return;
  const draft = `${file}.draft`;
  try {
    writeFileSync(draft, text, { mode: 0o600, flush });
    renameSync(draft, file);
  } catch (reason) {
    rmSync(draft, { force: true });
    throw reason;
  }
}

function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (reason) {
    if (errorCodeOf(reason) === 'ENOENT') return undefined;
    throw reason;
  }
}
