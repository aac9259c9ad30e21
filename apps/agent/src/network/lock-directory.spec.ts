import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prepareLockDirectory } from './lock-directory.js';

describe('prepareLockDirectory', () => {
  const uid = process.getuid?.() ?? 0;
  /** Any user that is not the one of the test, and not root. */
  const other = uid + 4_711;
  let root: string;
  const place = (user: number) => ({ uid: user, runDirectory: root, temporaryDirectory: root });
  beforeEach(() => void (root = mkdtempSync(join(tmpdir(), 'cloudless-lock-'))));
  afterEach(() => rmSync(root, { recursive: true }));

  const ownName = uid === 0 ? 'cloudless' : `cloudless-${uid}`;

  it('creates a directory that only its user may use, and finds it again', () => {
    const directory = prepareLockDirectory(place(uid));
    expect(directory).toBe(join(root, ownName));
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    expect(prepareLockDirectory(place(uid))).toBe(directory);
  });

  it('refuses a directory of another user, and names the user', () => {
    mkdirSync(join(root, `cloudless-${other}`), { mode: 0o700 });
    expect(() => prepareLockDirectory(place(other))).toThrow(
      `must be a directory of user ${other} that no other user may write, and belongs to user ${uid} with mode 0700`,
    );
  });

  it.each([0o720, 0o702, 0o777])('refuses a directory with mode %o', (mode) => {
    mkdirSync(join(root, ownName));
    chmodSync(join(root, ownName), mode);
    expect(() => prepareLockDirectory(place(uid))).toThrow(`with mode 0${mode.toString(8)}`);
  });

  it('refuses a link to a directory', () => {
    symlinkSync(root, join(root, ownName));
    expect(() => prepareLockDirectory(place(uid))).toThrow('is no directory');
  });
});
