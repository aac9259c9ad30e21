import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { NodeIdentityKeeper } from '@cloudless/agent-core';
import { TestAuthority } from '@cloudless/identity/testing';
import { openNodeIdentity, toServerTls } from './node-identity.js';

describe('openNodeIdentity', () => {
  let dataDir: string;
  beforeEach(async () => (dataDir = await mkdtemp(join(tmpdir(), 'agent-identity-'))));
  afterEach(() => rm(dataDir, { recursive: true, force: true }));

  const open = (nodeId = 'n1') => openNodeIdentity(dataDir, nodeId, 'cloudless-agent reset');
  /** Stores an identity whose certificate is for the key, or for another key. */
  const obtain = async (keeper: NodeIdentityKeeper, { ownKey = true } = {}): Promise<void> => {
    const authority = await TestAuthority.create({ nowMs: Date.now() });
    const request = await keeper.requireRequest();
    const credential = await authority.issue('node', 'n1');
    const keyPem = ownKey ? credential.keyPem : request.keyPem;
    await keeper.replace(
      {
        nodeId: 'n1',
        clusterId: 'c1',
        trustDomain: 'cloudless',
        coordinatorIds: ['spiffe://cloudless/controller/coordinator'],
        trustBundle: { generation: 1n, pem: authority.bundlePem },
        keyPem,
        chainPem: credential.chainPem,
        publicKeySha256: request.publicKeySha256,
        notBeforeMs: 0,
        notAfterMs: 1,
        obtainedAtMs: 0,
      },
      { ...request, keyPem },
    );
  };

  it('finds the identity, or the request, that an earlier agent stored in private files', async () => {
    const first = await open();
    const request = await first.requireRequest();
    expect((await (await open()).requireRequest()).keyPem).toBe(request.keyPem);
    await obtain(first);
    expect((await open()).current).toEqual(first.current);
    const folder = join(dataDir, 'identity');
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
    const names = await readdir(folder);
    expect(names.sort()).toEqual(['ca.crt', 'identity.json', 'node.crt', 'node.key']);
    for (const name of names) expect((await stat(join(folder, name))).mode & 0o777).toBe(0o600);
  });

  it('refuses a key that others can read, and names the command', async () => {
    await obtain(await open());
    const key = join(dataDir, 'identity', 'node.key');
    await chmod(key, 0o640);
    await expect(open()).rejects.toThrow(`run: chmod 600 ${key}`);
  });

  it('refuses an identity of another node, and names the way out', async () => {
    await obtain(await open());
    await expect(open('n2')).rejects.toThrow(
      'the data directory has the identity of node n1, not of n2; start the agent with --name n1',
    );
  });

  it.each([
    ['belongs to another certificate', undefined],
    ['is damaged', '-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n'],
  ])('refuses a key that %s, without parts of the key', async (_name, text) => {
    await obtain(await open(), { ownKey: text !== undefined });
    if (text !== undefined) await writeFile(join(dataDir, 'identity', 'node.key'), text);
    await expect(open()).rejects.toMatchObject({
      kind: 'internal',
      message: expect.stringMatching(
        /^the key and the certificate of node n1 do not belong together;(?!.*secret)/,
      ),
    });
  });

  it('gives servers the certificate, and tells them of a new one', async () => {
    const keeper = await open();
    const tls = toServerTls(keeper);
    expect(() => tls.getContext()).toThrow('this machine has not joined its cluster yet');
    const chains: string[] = [];
    tls.onContextChange(() => chains.push(tls.getContext().chainPem));
    await obtain(keeper);
    await obtain(keeper);
    expect(new Set(chains).size).toBe(2);
  });
});
