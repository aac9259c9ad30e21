import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeDirectory, makeDirectorySync } from './index.js';

/** The asynchronous and the synchronous function: each test runs for both. */
const forms = [
  { name: 'makeDirectory', make: makeDirectory },
  {
    name: 'makeDirectorySync',
    make: async (path: string, mode?: number) => makeDirectorySync(path, mode),
  },
];

describe.each(forms)('$name', ({ make }) => {
  let home = '';
  beforeEach(() => void (home = mkdtempSync(join(tmpdir(), 'make-directory-'))));
  afterEach(() => rmSync(home, { recursive: true }));

  it('creates a directory with all missing parents, and returns the first created directory', async () => {
    expect(await make(join(home, 'a', 'b', 'c'), 0o700)).toBe(join(home, 'a'));
    const modes = ['a', 'a/b', 'a/b/c'].map((path) => statSync(join(home, path)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o700, 0o700]);
  });

  it('leaves an existing directory unchanged and returns undefined', async () => {
    const { mode } = statSync(home);
    expect(await make(home, 0o755)).toBeUndefined();
    expect(await make(`${home}/`, 0o755)).toBeUndefined();
    expect(statSync(home).mode).toBe(mode);
  });

  it('succeeds for all of several callers that create the same directory at the same time', async () => {
    const path = join(home, 'a', 'b');
    await Promise.all(Array.from({ length: 8 }, () => make(path)));
    expect(statSync(path).isDirectory()).toBe(true);
  });

  it('rejects a path that is a file or leads through a file', async () => {
    writeFileSync(join(home, 'file'), '');
    await expect(make(join(home, 'file'))).rejects.toMatchObject({ code: 'EEXIST' });
    await expect(make(join(home, 'file', 'below'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  });

  // Linux answers mkdir in /proc with ENOENT although /proc exists. Node 20's own recursive mkdir
  // never returns there.
  it.each(process.platform === 'linux' ? ['/proc/cloudless', '/proc/cloudless/a/b'] : [])(
    'rejects with ENOENT where the file system creates no directories (%s)',
    async (path) => {
      await expect(make(path)).rejects.toMatchObject({ code: 'ENOENT' });
    },
  );
});
