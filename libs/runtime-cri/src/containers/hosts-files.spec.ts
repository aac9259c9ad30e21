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

describe('a hosts file', () => {
  it('is there to be mounted before the address is known, and is the same file afterwards', async () => {
    expect(await files.make(request)).toEqual({
      ...{ containerPath: '/etc/hosts', hostPath: file(), readonly: false, selinuxRelabel: true },
    });
    const { ino } = statSync(file());
    await files.fill(request, '10.0.0.7');
    expect(statSync(file()).ino).toBe(ino);
    expect(readFileSync(file(), 'utf8')).toContain('10.0.0.7\tweb-1\n');
  });

  it('can be read by every user of the container, whatever the mask of the agent is', async () => {
    const before = process.umask(0o077);
    try {
      await files.make(request);
    } finally {
      process.umask(before);
    }
    expect(statSync(file()).mode & 0o777).toBe(0o644);
  });

  it('can only be read where the root file system can only be read', async () => {
    const mount = await files.make({ ...request, security: { readOnlyRootFilesystem: true } });
    expect(mount).toMatchObject({ readonly: true });
  });

  it('is not made where a volume is mounted at /etc/hosts', async () => {
    const source = { kind: 'hostPath', path: '/srv/hosts' } as const;
    const own = {
      ...request,
      volumes: [{ name: 'hosts', mountPath: '/etc/hosts/', readOnly: true, source }],
    };
    expect(await files.make(own)).toBeUndefined();
    await files.fill(own, '10.0.0.7');
    expect(existsSync(directory())).toBe(false);
  });

  it('is not made again by a start that has failed and was cleaned up meanwhile', async () => {
    await files.make(request);
    rmSync(directory(), { recursive: true });
    await expect(files.fill(request, '10.0.0.7')).rejects.toMatchObject({ kind: 'precondition' });
    expect(existsSync(directory())).toBe(false);
  });

  it('that cannot be made is an error with its place', async () => {
    const nowhere = new HostsFiles(() => '/dev/null/logs');
    await expect(nowhere.make(request)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('the hosts file /dev/null/logs/hosts cannot be written: '),
    });
  });
});
