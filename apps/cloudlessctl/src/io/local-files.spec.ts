import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LocalFiles } from './local-files.js';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'cloudless-files-'))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const files = new LocalFiles();
const modeOf = (path: string): number => statSync(path).mode & 0o777;

describe('LocalFiles', () => {
  it('creates a secret with mode 0600 and never overwrites a file', async () => {
    const path = join(folder, 'token');
    await files.createSecret(path, 'one');
    expect(modeOf(path)).toBe(0o600);
    await expect(files.createSecret(path, 'two')).rejects.toMatchObject({ code: 'EEXIST' });
    expect(readFileSync(path, 'utf8')).toBe('one');
  });

  it('replaces a secret and creates its directory with mode 0700', async () => {
    const path = join(folder, 'identities', 'prod', 'identity.json');
    await files.replaceSecret(path, 'one');
    await files.replaceSecret(path, 'two');
    expect(readFileSync(path, 'utf8')).toBe('two');
    expect([modeOf(path), modeOf(join(path, '..'))]).toEqual([0o600, 0o700]);
    expect(await files.list(join(path, '..'))).toEqual(['identity.json']);
  });

  it('replaces none of several secrets when one cannot be written', async () => {
    const bytes = (text: string): Uint8Array => Buffer.from(text);
    const [kept, file, inFile] = ['kept', 'file', 'file/x'].map((name) => join(folder, name));
    for (const path of [kept ?? '', file ?? '']) writeFileSync(path, 'before');
    const contents = new Map([kept, inFile].map((path) => [path ?? '', bytes('after')]));
    await expect(files.replaceSecrets(contents)).rejects.toThrow();
    expect(readFileSync(kept ?? '', 'utf8')).toBe('before');
    expect((await files.list(folder))?.toSorted()).toEqual(['file', 'kept']);
  });

  it.each([0o644, 0o640, 0o604, 0o620])(
    'refuses a secret with mode %i and names the command that mends it',
    async (mode) => {
      const path = join(folder, 'token');
      writeFileSync(path, 'secret');
      chmodSync(path, mode);
      await expect(files.readSecret(path)).rejects.toMatchObject({
        name: 'OpenSecretError',
        message: `${path} has mode 0${mode.toString(8)}, so others can read the secret; run: chmod 600 ${path}`,
      });
    },
  );

  it.each([0o600, 0o400])('reads a secret with mode %i', async (mode) => {
    const path = join(folder, 'token');
    writeFileSync(path, 'secret');
    chmodSync(path, mode);
    expect(Buffer.from(await files.readSecret(path)).toString()).toBe('secret');
  });

  it('gives a lock to one of many callers', async () => {
    const path = join(folder, 'lock');
    const unlocks = await Promise.all(Array.from({ length: 20 }, () => files.lock(path, 60_000)));
    const held = unlocks.filter((unlock) => unlock !== undefined);
    expect(held).toHaveLength(1);
    await held[0]?.();
    expect(await files.lock(path, 60_000)).toBeDefined();
  });

  it('gives a stale lock to at most one of many callers', async () => {
    const path = join(folder, 'lock');
    writeFileSync(path, '1\n');
    utimesSync(path, 1, 1);
    const unlocks = await Promise.all(Array.from({ length: 20 }, () => files.lock(path, 60_000)));
    expect(unlocks.filter((unlock) => unlock !== undefined)).toHaveLength(1);
  });

  it('removes a directory with its files, and accepts that there is none', async () => {
    await files.replaceSecret(join(folder, 'prod', 'identity.json'), 'x');
    await files.remove(join(folder, 'prod'));
    await files.remove(join(folder, 'prod'));
    expect(await files.exists(join(folder, 'prod'))).toBe(false);
  });
});
