import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hostFiles } from './index.js';

describe('hostFiles.readText', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'host-files-'));
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  const write = async (text: string): Promise<string> => {
    const path = join(directory, 'file');
    await writeFile(path, text);
    return path;
  };

  it.each([
    { name: 'an empty file', text: '' },
    { name: 'a line', text: '7\n' },
    {
      name: 'a file of several reads with multi-byte characters across the boundaries of the reads',
      text: `a${'ä€'.repeat(5_000)}`,
    },
  ])('returns the whole text of $name', async ({ text }) => {
    expect(await hostFiles.readText(await write(text), Buffer.byteLength(text))).toBe(text);
  });

  it('rejects when the file is longer than the size limit', async () => {
    const path = await write('0123456789');
    await expect(hostFiles.readText(path, 9)).rejects.toMatchObject({
      kind: 'exhausted',
      message: `${path} is longer than 9 bytes`,
    });
    // /dev/zero never ends.
    await expect(hostFiles.readText('/dev/zero', 100_000)).rejects.toMatchObject({
      kind: 'exhausted',
    });
  });

  it('returns undefined for a missing file and for a path below a file', async () => {
    expect(await hostFiles.readText(join(directory, 'none'), 10)).toBeUndefined();
    expect(await hostFiles.readText(join(await write('x'), 'below'), 10)).toBeUndefined();
  });

  it('rejects with the error of the file system for a directory', async () => {
    await expect(hostFiles.readText(directory, 10)).rejects.toMatchObject({ code: 'EISDIR' });
  });
});
