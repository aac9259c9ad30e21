import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SealedFiles } from './sealed-files.js';

describe('sealed files', () => {
  let directory: string;
  beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), 'sealed-'))));
  afterEach(() => rmSync(directory, { recursive: true }));

  const openFiles = () => new SealedFiles(join(directory, 'folder'), join(directory, 'files.key'));
  const modeOf = (...names: string[]): number => statSync(join(directory, ...names)).mode & 0o777;

  it('decrypt a text only with its key and its context', async () => {
    const sealed = await openFiles().seal('secret', 'a');
    expect(JSON.stringify(sealed)).not.toContain('secret');
    expect(await openFiles().unseal(sealed, 'a')).toBe('secret');
    await expect(openFiles().unseal(sealed, 'b')).rejects.toThrow();
    await expect(openFiles().unseal({ ...sealed, tag: 'AAAA' }, 'a')).rejects.toThrow();
    writeFileSync(join(directory, 'files.key'), 'short');
    await expect(openFiles().unseal(sealed, 'a')).rejects.toThrow();
    expect(readFileSync(join(directory, 'files.key'))).toHaveLength(32);
  });

  it('create one key for calls at the same time, which only this user can read', async () => {
    const files = openFiles();
    await Promise.all([files.prepareKey(), files.prepareKey(), files.seal('x', 'a')]);
    const key = readFileSync(join(directory, 'files.key'));
    await openFiles().prepareKey();
    expect(readFileSync(join(directory, 'files.key'))).toEqual(key);
    expect(modeOf('files.key')).toBe(0o600);
    expect(readdirSync(directory)).toEqual(['files.key']);
  });

  it('are replaced whole, listed and removed, with the draft of a write that did not end', async () => {
    const files = openFiles();
    expect(await files.list()).toEqual([]);
    await files.write('one', 'first');
    await files.write('one', 'second');
    expect(await files.read('one')).toBe('second');
    expect([modeOf('folder'), modeOf('folder', 'one')]).toEqual([0o700, 0o600]);
    writeFileSync(join(directory, 'folder', 'two.draft'), '');
    expect([...(await files.list())].sort()).toEqual(['one', 'two']);
    await files.remove('one');
    await files.remove('two');
    expect(readdirSync(join(directory, 'folder'))).toEqual([]);
    await expect(files.read('one')).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
