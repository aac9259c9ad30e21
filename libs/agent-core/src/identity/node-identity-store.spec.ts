import { CrashError, FakeAuthority, MemoryIdentityFiles } from '../testing/index.js';
import { toNodeIdentity, type NodeIdentity } from './node-identity.js';
import { NodeIdentityStore } from './node-identity-store.js';

const NOW = Date.UTC(2026, 0, 1);

class Bed {
  readonly files = new MemoryIdentityFiles();
  readonly authority = new FakeAuthority(() => NOW);

  /** A store as a new process of the agent opens it. */
  get store(): NodeIdentityStore {
    return new NodeIdentityStore(this.files, 'cloudless-agent reset');
  }

  /** Requests and stores a certificate, as the agent does. */
  async obtain(): Promise<NodeIdentity> {
    const request = await this.authority.createRequest();
    await this.store.saveRequest(request);
    const certificate = await this.authority.renew({ csr: request.csr } as never);
    const identity = toNodeIdentity(certificate, { nodeId: 'n1', clusterId: 'c1', request }, NOW);
    await this.store.saveIdentity(identity, request);
    return identity;
  }

  /** Number of the key in the stored identity, after a check that key and certificate match. */
  async loadKey(): Promise<string | undefined> {
    const { identity } = await this.store.load();
    if (identity === undefined) return undefined;
    expect(identity.keyPem).toBe(`secret of ${identity.publicKeySha256}`);
    expect(identity.chainPem).toBe(`certificate of ${identity.publicKeySha256}`);
    expect(this.files.content.get('node.key')).toBe(identity.keyPem);
    expect(this.files.content.get('node.crt')).toBe(identity.chainPem);
    expect(this.files.content.get('ca.crt')).toBe(identity.trustBundle.pem);
    return identity.publicKeySha256;
  }
}

describe('NodeIdentityStore', () => {
  it('loads the identity, and then the request, that another process stored', async () => {
    const bed = new Bed();
    expect(await bed.store.load()).toEqual({});
    const identity = await bed.obtain();
    expect(await bed.store.load()).toEqual({ identity });
    const request = await bed.authority.createRequest();
    await bed.store.saveRequest(request);
    expect(await bed.store.load()).toEqual({ identity, request });
  });

  it('writes the private key only to node.key and request.json', async () => {
    const bed = new Bed();
    await bed.obtain();
    await bed.store.saveRequest(await bed.authority.createRequest());
    const withSecret = [...bed.files.content].flatMap(([name, text]) =>
      text.includes('secret') ? [name] : [],
    );
    expect(withSecret.sort()).toEqual(['node.key', 'request.json']);
  });

  it('stores a trust bundle beside the certificate', async () => {
    const bed = new Bed();
    const identity = await bed.obtain();
    await bed.store.saveTrustBundle(identity, { generation: 7n, pem: 'roots 7' });
    expect((await bed.store.load()).identity?.trustBundle).toEqual({
      generation: 7n,
      pem: 'roots 7',
    });
    expect(await bed.loadKey()).toBe('key-1');
  });

  // A renewal makes five changes: the request, identity.json, node.key, node.crt, and the removal
  // of the request; ca.crt stays as it is.
  const crashes = [1, 2, 3, 4, 5].flatMap((change) =>
    [false, true].map((isDone) => ({
      change,
      isDone,
      key: change > 2 || (change === 2 && isDone) ? 'key-2' : 'key-1',
      keepsRequest: change === 2 ? !isDone : change === 1 && isDone,
    })),
  );
  it.each(crashes)(
    'has $key with its certificate after a crash at change $change of a renewal (done: $isDone)',
    async ({ change, isDone, key, keepsRequest }) => {
      const bed = new Bed();
      await bed.obtain();
      bed.files.crash = { atChange: bed.files.changes + change, isDone };
      await expect(bed.obtain()).rejects.toThrow(CrashError);
      bed.files.crash = undefined;
      expect(await bed.loadKey()).toBe(key);
      expect((await bed.store.load()).request?.publicKeySha256).toBe(
        keepsRequest ? 'key-2' : undefined,
      );
    },
  );

  it('has the same identity after a crash during the completion of an interrupted renewal', async () => {
    for (const atRecovery of [1, 2, 3]) {
      const bed = new Bed();
      await bed.obtain();
      bed.files.crash = { atChange: bed.files.changes + 2, isDone: true };
      await expect(bed.obtain()).rejects.toThrow(CrashError);
      bed.files.crash = { atChange: bed.files.changes + atRecovery, isDone: false };
      await expect(bed.store.load()).rejects.toThrow(CrashError);
      bed.files.crash = undefined;
      expect(await bed.loadKey()).toBe('key-2');
    }
  });

  it.each([
    ['identity.json is cut off', 'identity.json', '{"format":1,'],
    ['identity.json has another format', 'identity.json', '{"format":2}'],
    ['request.json has no key', 'request.json', '{"format":1,"keyPem":"secret"}'],
  ] as const)('names the file, but no content, when %s', async (_name, file, text) => {
    const bed = new Bed();
    await bed.obtain();
    bed.files.content.set(file, text);
    const failure = await bed.store.load().catch((reason: unknown) => reason);
    expect(failure).toMatchObject({
      kind: 'internal',
      message: expect.stringMatching(new RegExp(`^${file} .*cloudless-agent reset`)),
    });
    expect(JSON.stringify([failure, (failure as Error).cause])).not.toContain('secret');
  });

  it('says that the key is missing when only the certificate is left', async () => {
    const bed = new Bed();
    await bed.obtain();
    bed.files.content.delete('node.key');
    await expect(bed.store.load()).rejects.toThrow(
      'node.key of the identity of node n1 is missing',
    );
  });

  it('writes the copies for people again when they were changed', async () => {
    const bed = new Bed();
    await bed.obtain();
    bed.files.content.set('ca.crt', 'other roots');
    bed.files.content.delete('node.crt');
    expect(await bed.loadKey()).toBe('key-1');
  });
});
