import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '@cloudless/base';
import type { ClusterIdentities } from '@cloudless/controllers';
import { TokenFiles, nameRoots } from './token-files.js';

const OLD = 'ab'.repeat(32);
const NEW = 'cd'.repeat(32);
const SECRET = 'A'.repeat(43);
const toUserToken = (...roots: string[]) => ['clu1.abcdefghijkl', SECRET, ...roots].join('.');
const toJoinCommand = (...roots: string[]) =>
  `printf %s ${['cl1.abcdefghijkl', SECRET, ...roots].join('.')} | cloudless-agent run --join-token-file -\n`;

let directory = '';
let rootSha256s: readonly string[] = [OLD];
let listener: () => void = () => undefined;
let warnings: string[] = [];
let files: TokenFiles | undefined;
const identities = {
  getTrustBundle: () => ({ rootSha256s }),
  onChange: (added: () => void) => {
    listener = added;
    return () => (listener = () => undefined);
  },
} as unknown as ClusterIdentities;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cloudless-token-files-'));
  rootSha256s = [OLD];
  warnings = [];
});
afterEach(async () => {
  await files?.close();
  rmSync(directory, { recursive: true });
});

const read = (name: string) => readFileSync(join(directory, name), 'utf8');
const write = (name: string, text: string, mode = 0o600) => {
  writeFileSync(join(directory, name), text, { mode });
  chmodSync(join(directory, name), mode);
};
async function open(): Promise<TokenFiles> {
  const log = { ...silentLog, warn: (message: string) => warnings.push(message) };
  files = new TokenFiles({ identities, directory, log });
  await files.settled();
  return files;
}
async function changeRoots(...roots: string[]): Promise<void> {
  rootSha256s = roots;
  listener();
  await files?.settled();
}

describe('TokenFiles', () => {
  it('keeps the tokens of both files valid through a rotation, with the same secrets', async () => {
    write('admin.credential', `${toUserToken(OLD)}\n`);
    write('join-command', toJoinCommand(OLD));
    await open();
    await changeRoots(OLD, NEW);
    expect(read('admin.credential')).toBe(`${toUserToken(OLD, NEW)}\n`);
    expect(read('join-command')).toBe(toJoinCommand(OLD, NEW));
    await changeRoots(NEW);
    expect(read('admin.credential')).toBe(`${toUserToken(NEW)}\n`);
    expect(read('join-command')).toBe(toJoinCommand(NEW));
    expect(statSync(join(directory, 'join-command')).mode & 0o777).toBe(0o600);
  });

  it('writes a file again at the start after a crash in between', async () => {
    write('admin.credential', `${toUserToken(OLD)}\n`);
    rootSha256s = [NEW];
    await open();
    expect(read('admin.credential')).toBe(`${toUserToken(NEW)}\n`);
  });

  it('does not bring back a file that an operator has deleted', async () => {
    await open();
    await changeRoots(OLD, NEW);
    expect(() => read('admin.credential')).toThrow('ENOENT');
    expect(warnings).toEqual([]);
  });

  it('warns of a file that others can read, and leaves the file as it is', async () => {
    write('admin.credential', toUserToken(OLD), 0o644);
    await open();
    await changeRoots(OLD, NEW);
    expect(read('admin.credential')).toBe(toUserToken(OLD));
    expect(warnings).toContain('file of a token still names the old root certificates');
  });
});

describe('nameRoots', () => {
  it.each([
    ['a text without a token', 'clu1 cl1 a.b.c'],
    ['a token that is not complete', 'clu1.abcdefghijkl.short'],
  ])('leaves %s as it is', (_, text) => {
    expect(nameRoots(text, [NEW])).toBe(text);
  });
});
