import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { aRequest } from '../testing/requests.js';
import { HostsFiles } from './hosts-files.js';

let tempDirectory: string;
let files: HostsFiles;
beforeEach(() => {
  tempDirectory = mkdtempSync(path.join(tmpdir(), 'cloudless-hosts-'));
  files = new HostsFiles((containerId) => path.join(tempDirectory, 'logs', containerId));
});
afterEach(() => rmSync(tempDirectory, { recursive: true, force: true }));

const request = aRequest({ network: { hostname: 'web-1' } });
const directory = (): string => path.join(tempDirectory, 'logs', request.containerId);
const file = (): string => path.join(directory(), 'hosts');

describe('HostsFiles', () => {
  it('creates an empty file to mount, and later writes the address into the same file', async () => {
    expect(await files.create(request)).toEqual({
      ...{ containerPath: '/etc/hosts', hostPath: file(), readonly: false, selinuxRelabel: true },
    });
    const { ino } = statSync(file());
    await files.fill(request, '10.0.0.7');
    expect(statSync(file()).ino).toBe(ino);
    expect(readFileSync(file(), 'utf8')).toContain('10.0.0.7\tweb-1\n');
  });

  it('creates the file with mode 0644 whatever the umask of the agent', async () => {
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
    const withVolume = {
      ...request,
      volumes: [{ name: 'hosts', mountPath: '/etc/hosts/', readOnly: true, source }],
    };
    expect(await files.create(withVolume)).toBeUndefined();
    await files.fill(withVolume, '10.0.0.7');
    expect(existsSync(directory())).toBe(false);
  });

  it('rejects and creates nothing when the directory was removed before the address is known', async () => {
    await files.create(request);
    rmSync(directory(), { recursive: true });
    await expect(files.fill(request, '10.0.0.7')).rejects.toMatchObject({ kind: 'precondition' });
    expect(existsSync(directory())).toBe(false);
  });

  it('rejects and creates nothing when the file was removed before the address is known', async () => {
    await files.create(request);
    rmSync(file());
    await expect(files.fill(request, '10.0.0.7')).rejects.toMatchObject({ kind: 'precondition' });
    expect(existsSync(file())).toBe(false);
  });

  it('rejects with the path of the file when the file cannot be created', async () => {
    const uncreatable = new HostsFiles(() => '/dev/null/logs');
    await expect(uncreatable.create(request)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('the hosts file /dev/null/logs/hosts cannot be written: '),
    });
  });
});
