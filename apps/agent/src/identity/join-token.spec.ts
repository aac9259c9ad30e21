import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { JoinTokenReader } from './join-token.js';

const TOKEN = `cl1.abcdefghij12.${'s'.repeat(42)}A.${'0'.repeat(64)}`;

describe('JoinTokenReader', () => {
  let directory: string;
  let path: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'agent-token-'));
    path = join(directory, 'token');
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  const read = (joinTokenFile: string, input = ''): Promise<string | undefined> =>
    new JoinTokenReader({ joinToken: undefined, joinTokenFile }, async () => input).read();

  it('reads a file again each time, because an operator may replace its content', async () => {
    const reader = new JoinTokenReader({ joinToken: undefined, joinTokenFile: path });
    await writeFile(path, `${TOKEN}\n`, { mode: 0o600 });
    expect(await reader.read()).toBe(TOKEN);
    const other = TOKEN.replace('cl1.a', 'cl1.b');
    await writeFile(path, other);
    expect(await reader.read()).toBe(other);
    await rm(path);
    expect(await reader.read()).toBeUndefined();
  });

  it('reads standard input once', async () => {
    let reads = 0;
    const reader = new JoinTokenReader({ joinToken: undefined, joinTokenFile: '-' }, async () => {
      reads += 1;
      return `${TOKEN}\n`;
    });
    expect([await reader.read(), await reader.read(), reads]).toEqual([TOKEN, TOKEN, 1]);
  });

  it('returns the text of the settings, or nothing', async () => {
    const settings = { joinToken: TOKEN, joinTokenFile: undefined };
    expect(await new JoinTokenReader(settings).read()).toBe(TOKEN);
    const none = new JoinTokenReader({ joinToken: undefined, joinTokenFile: undefined });
    expect([await none.read(), none.isConfigured]).toEqual([undefined, false]);
  });

  it('refuses a file that others can read, and names the command', async () => {
    await writeFile(path, TOKEN);
    await chmod(path, 0o644);
    await expect(read(path)).rejects.toThrow(`run: chmod 600 ${path}`);
  });

  it('refuses another text without a word of it', async () => {
    await writeFile(path, 'secret-x', { mode: 0o600 });
    await expect(read(path)).rejects.toThrow(
      `--join-token-file: the text of ${path} is no join token;`,
    );
    await expect(read('-', 'secret-x')).rejects.toThrow(/^(?!.*secret-x).*standard input/);
  });
});
