import { existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { prepareCommand } from './command-start.js';

const FULL_DEVICE = '/dev/full';

/** `/dev/full`, a device of Linux, refuses each write like a full disk. */
const itOnLinux = existsSync(FULL_DEVICE) ? it : it.skip;

describe('prepareCommand', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(path.join(tmpdir(), 'cloudless-command-'));
  });
  afterEach(() => rmSync(directory, { recursive: true, force: true }));

  itOnLinux('names the full file system, and leaves no launch script behind', () => {
    const scriptFile = path.join(directory, 'launch');
    symlinkSync(FULL_DEVICE, scriptFile);
    const tools = {
      ...{ shell: '/bin/sh', env: '/usr/bin/env', setsid: '/usr/bin/setsid' },
      ...{ sleep: '/bin/sleep', grep: '/bin/grep', addedVariables: [] },
    };
    const join = { tools, joinFile: undefined, mountEntry: undefined, scriptFile };
    const context = { env: { PATH: '/usr/bin:/bin' }, workingDir: directory };
    expect(() => prepareCommand(['sh', '-c', 'true'], context, 'exec-1', join)).toThrow(
      expect.objectContaining({
        kind: 'exhausted',
        message: `the command cannot start: the file system of ${directory} is full (no space left on device); free some space on the machine`,
      }),
    );
    expect(existsSync(scriptFile)).toBe(false);
  });
});
