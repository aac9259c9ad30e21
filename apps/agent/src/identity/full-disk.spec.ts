import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError } from '@cloudless/base';
import type { NodeIdentity } from '@cloudless/agent-core';
import { TestAuthority } from '@cloudless/identity/testing';
import { DiskReserve, writeFlushed } from '../data/disk-reserve.js';
import type { IdentityDirectoryOptions } from './identity-directory.js';
import { openNodeIdentity } from './node-identity.js';

describe('identity of a node on a full disk', () => {
  let dataDir: string;
  let reserve: DiskReserve;
  let authority: TestAuthority;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'identity-full-disk-'));
    reserve = new DiskReserve(dataDir);
    await reserve.refill();
    authority = await TestAuthority.create({ nowMs: Date.now() });
  });
  afterEach(() => rm(dataDir, { recursive: true, force: true }));

  /** Another process takes all free space: only a file of the reserve can be overwritten. */
  const fullDisk = (): IdentityDirectoryOptions => ({
    reserve,
    replaceFile: async (path) => {
      throw new CloudlessError('exhausted', `${path} cannot be written: ENOSPC`);
    },
    writeFile: async (path, content, flags) => {
      if (flags === 'r+') return writeFlushed(path, content, flags);
      throw Object.assign(new Error('ENOSPC: write'), { code: 'ENOSPC' });
    },
  });
  const open = (options: IdentityDirectoryOptions = { reserve }) =>
    openNodeIdentity(dataDir, 'n1', 'cloudless-agent reset', options);

  /** Gets a certificate with a new key, as the agent does. */
  const renew = async (options?: IdentityDirectoryOptions): Promise<NodeIdentity> => {
    const keeper = await open(options);
    const request = await keeper.requireRequest();
    const { keyPem, chainPem } = await authority.issue('node', 'n1');
    await keeper.replace(
      {
        ...{ nodeId: 'n1', clusterId: 'c1', trustDomain: 'cloudless', keyPem, chainPem },
        coordinatorIds: ['spiffe://cloudless/controller/coordinator'],
        trustBundle: { generation: 1n, pem: authority.bundlePem },
        publicKeySha256: request.publicKeySha256,
        ...{ notBeforeMs: 0, notAfterMs: 1, obtainedAtMs: 0 },
      },
      { ...request, keyPem },
    );
    return keeper.current!;
  };

  it('renews a certificate any number of times with the disk reserve', async () => {
    await renew();
    let identity: NodeIdentity | undefined;
    for (let renewals = 0; renewals < 20; renewals += 1) identity = await renew(fullDisk());
    expect((await open()).current).toEqual(identity);
    expect((await readdir(join(dataDir, 'identity'))).sort()).toEqual([
      ...['ca.crt', 'identity.json', 'node.crt', 'node.key'],
    ]);
    expect(await readdir(join(dataDir, 'reserve'))).toHaveLength(8);
  });

  it('leaves no earlier key in the disk reserve', async () => {
    const keys = [];
    for (let renewals = 0; renewals < 6; renewals += 1)
      keys.push((await renew(renewals === 0 ? undefined : fullDisk())).keyPem);
    const folder = join(dataDir, 'reserve');
    for (const name of await readdir(folder)) {
      const content = (await readFile(join(folder, name))).toString('latin1');
      expect(content).not.toContain('PRIVATE KEY');
    }
    expect(new Set(keys).size).toBe(6);
  });

  it('keeps the old certificate when the disk reserve is used up', async () => {
    const identity = await renew();
    await reserve.release();
    await expect(renew(fullDisk())).rejects.toMatchObject({ kind: 'exhausted' });
    expect((await open()).current).toEqual(identity);
  });

  it('joins a cluster with the disk reserve', async () => {
    const request = await (await open(fullDisk())).requireRequest();
    expect(await (await open()).requireRequest()).toEqual(request);
  });
});
