import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { aRequest } from '../testing/requests.js';
import { HostsFiles } from './hosts-files.js';

let home: string;
let files: HostsFiles;
beforeEach(() => {
  home = mkdtempSync(path.join(tmpdir(), 'cloudless-hosts-'));
  files = new HostsFiles((containerId) => path.join(home, 'logs', containerId));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const request = aRequest({ network: { hostname: 'web-1' } });
const directory = (): string => path.join(home, 'logs', request.containerId);
const file = (): string => path.join(directory(), 'hosts');

describe('HostsFiles', () => {
  it('creates the file before the address is known and fills the same file afterwards', async () => {
    expect(await files.create(request)).toEqual({
      ...{ containerPath: '/etc/hosts', hostPath: file(), readonly: false, selinuxRelabel: true },
    });
    const { ino } = statSync(file());
    await files.fill(request, '10.0.0.7');
    expect(statSync(file()).ino).toBe(ino);
    expect(readFileSync(file(), 'utf8')).toContain('10.0.0.7\tweb-1\n');
  });

  it('makes the file readable for every user of the container, independent of the umask of the agent', async () => {
    const before = process.umask(0o077);
    try {
      await files.create(request);
    } finally {
      process.umask(before);
    }
    expect(statSync(file()).mode & 0o777).toBe(0o644);
  });

  it('mounts the file read-only when the root file system is read-only', async () => {
    const mount = await files.create({ ...request, security: { readOnlyRootFilesystem: true } });
    expect(mount).toMatchObject({ readonly: true });
  });

  it('creates no file when a volume is mounted at /etc/hosts', async () => {
    const source = { kind: 'hostPath', path: '/srv/hosts' } as const;
    const own = {
      ...request,
      volumes: [{ name: 'hosts', mountPath: '/etc/hosts/', readOnly: true, source }],
    };
    expect(await files.create(own)).toBeUndefined();
    await files.fill(own, '10.0.0.7');
    expect(existsSync(directory())).toBe(false);
  });

  it('does not create the file again for a start that has failed and was cleaned up', async () => {
    await files.create(request);
    rmSync(directory(), { recursive: true });
    await expect(files.fill(request, '10.0.0.7')).rejects.toMatchObject({ kind: 'precondition' });
    expect(existsSync(directory())).toBe(false);
  });

  it('does not create a removed file again where its directory still exists', async () => {
    await files.create(request);
    rmSync(file());
    await expect(files.fill(request, '10.0.0.7')).rejects.toMatchObject({ kind: 'precondition' });
    expect(existsSync(file())).toBe(false);
  });

  it('reports the path of a file that cannot be created', async () => {
    const nowhere = new HostsFiles(() => '/dev/null/logs');
    await expect(nowhere.create(request)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('the hosts file /dev/null/logs/hosts cannot be written: '),
    });
  });
});
