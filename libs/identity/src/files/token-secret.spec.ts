import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadTokenSecret } from './index.js';

describe('loadTokenSecret', () => {
  let directory = '';
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cloudless-token-'));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  it('creates 32 random bytes, and saves them in a file of mode 600 only when asked', async () => {
    const created = await loadTokenSecret(directory, undefined);
    expect(created).toMatchObject({ source: 'created' });
    expect(created.bytes).toHaveLength(32);
    await expect(stat(join(directory, 'token-secret'))).rejects.toMatchObject({ code: 'ENOENT' });
    await created.save();
    const loaded = await loadTokenSecret(directory, undefined);
    expect(loaded).toMatchObject({ bytes: created.bytes, source: 'file' });
    expect((await stat(join(directory, 'token-secret'))).mode & 0o777).toBe(0o600);
  });

  const bytes = new Uint8Array(32).map((_, index) => 255 - index);
  const hex = Buffer.from(bytes).toString('hex');
  it.each([
    ['hex', hex, bytes],
    ['hex in upper case', hex.toUpperCase(), bytes],
    ['hex with a line feed', `${hex}\n`, bytes],
    ['base64', Buffer.from(bytes).toString('base64'), bytes],
    ['base64 for URLs', Buffer.from(bytes).toString('base64url'), bytes],
    ['a text of 32 characters', 'correct horse battery staple 012', undefined],
  ])('takes %s from the environment, and writes no file', async (_, text, expected) => {
    const secret = await loadTokenSecret(directory, text);
    await secret.save();
    expect(secret).toMatchObject({
      bytes: expected ?? new Uint8Array(Buffer.from(text)),
      source: 'environment',
    });
    await expect(stat(join(directory, 'token-secret'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it.each(['', ' ', 'short', 'ab'.repeat(15), ' '.repeat(64)])(
    'refuses the short value %j without repeating the value',
    async (text) => {
      const message =
        'the token secret of CLOUDLESS_TOKEN_SECRET is too short: 32 bytes in hex or base64, or a text of 32 characters, are needed; create one with: openssl rand -hex 32';
      await expect(loadTokenSecret(directory, text)).rejects.toMatchObject({
        kind: 'precondition',
        message,
      });
    },
  );

  it('refuses a damaged or readable file and leaves the file alone', async () => {
    const path = join(directory, 'token-secret');
    await writeFile(path, '', { mode: 0o600 });
    await expect(loadTokenSecret(directory, undefined)).rejects.toThrow(
      `the token secret of ${path} is too short`,
    );
    expect(await readFile(path, 'utf8')).toBe('');
    await rm(path);
    await writeFile(path, hex, { mode: 0o644 });
    await expect(loadTokenSecret(directory, undefined)).rejects.toThrow(`run: chmod 600 ${path}`);
  });
});
