import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeEtcd } from '../testing/describe-etcd.js';
import { EtcdCertificates, EtcdCluster, readCertificate } from '../testing/index.js';
import { openEtcdStateStore, type EtcdStateStoreOptions } from './etcd-state-store.js';

const VALUE = Buffer.from('value');

/** Opens a store, makes a transaction and closes the store. */
async function openAndWrite(options: EtcdStateStoreOptions): Promise<void> {
  const store = await openEtcdStateStore(options);
  try {
    await store.txn([], [{ put: 'a', value: VALUE }]);
    expect((await store.get('a'))?.value).toEqual(new Uint8Array(VALUE));
  } finally {
    await store.close();
  }
}

describeEtcd('a store on etcd with TLS and client certificates', () => {
  let cluster: EtcdCluster;
  let ca: string;
  let client: { readonly certificate: string; readonly key: string };
  let stranger: { readonly ca: string; readonly certificate: string; readonly key: string };
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'cloudless-etcd-test-'));
    const authority = await EtcdCertificates.create(directory);
    const server = await authority.issue('server');
    ca = await readFile(authority.files.certificate, 'utf8');
    client = await readCertificate(await authority.issue('client'));
    const other = await EtcdCertificates.create(join(directory, 'other'), 'other-ca');
    stranger = {
      ca: await readFile(other.files.certificate, 'utf8'),
      ...(await readCertificate(await other.issue('stranger'))),
    };
    cluster = await EtcdCluster.start({
      members: 1,
      clientScheme: 'https',
      flags: [
        ...['--cert-file', server.certificate, '--key-file', server.key],
        ...['--client-cert-auth', '--trusted-ca-file', authority.files.certificate],
      ],
    });
  });
  afterAll(async () => {
    await cluster.stop();
    await rm(directory, { recursive: true, force: true });
  });

  it('opens with the CA of etcd and a certificate that the CA signed', () =>
    openAndWrite({ endpoints: cluster.endpoints, tls: { ca, ...client } }));

  it('is refused with another CA', () =>
    expect(
      openAndWrite({ endpoints: cluster.endpoints, tls: { ...client, ca: stranger.ca } }),
    ).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('is not signed by the CA of --etcd-ca'),
    }));

  it.each([
    { name: 'without a client certificate', certificates: () => ({}) },
    {
      name: 'with a certificate of another CA',
      certificates: () => ({ certificate: stranger.certificate, key: stranger.key }),
    },
  ])('is refused $name', ({ certificates }) =>
    expect(
      openAndWrite({ endpoints: cluster.endpoints, tls: { ca, ...certificates() } }),
    ).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('etcd refused the client certificate'),
    }),
  );

  it('is refused over http:// by an endpoint with TLS', () =>
    expect(
      openAndWrite({ endpoints: cluster.endpoints.map((url) => url.replace('https', 'http')) }),
    ).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('use https:// with --etcd-ca'),
    }));
});

describeEtcd('a store on etcd with a user and password', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => {
    cluster = await EtcdCluster.start({ members: 1 });
    await cluster.etcdctl('user', 'add', 'root:secret');
    await cluster.etcdctl('user', 'add', 'cloudless:word');
    await cluster.etcdctl('role', 'add', 'cloudless');
    await cluster.etcdctl(
      'role',
      'grant-permission',
      'cloudless',
      'readwrite',
      '--prefix=true',
      '/cloudless',
    );
    await cluster.etcdctl('user', 'grant-role', 'root', 'root');
    await cluster.etcdctl('user', 'grant-role', 'cloudless', 'cloudless');
    await cluster.etcdctl('auth', 'enable');
  });
  afterAll(() => cluster.stop());

  it('opens with a user who may use only the prefix', () =>
    openAndWrite({
      endpoints: cluster.endpoints,
      user: { name: 'cloudless', password: 'word' },
    }));

  it.each([
    {
      name: 'a wrong password',
      options: { user: { name: 'cloudless', password: 'wrong' } },
      error: { kind: 'unauthenticated', message: 'does not accept the user and password' },
    },
    {
      name: 'no user',
      options: {},
      error: { kind: 'unauthenticated', message: 'set --etcd-user and --etcd-password-file' },
    },
    {
      name: 'a prefix that the user may not use',
      options: { prefix: '/other', user: { name: 'cloudless', password: 'word' } },
      error: { kind: 'denied', message: 'its user lacks the permission' },
    },
  ])('is refused with $name', ({ options, error: { kind, message } }) =>
    expect(openAndWrite({ endpoints: cluster.endpoints, ...options })).rejects.toMatchObject({
      kind,
      message: expect.stringContaining(message),
    }),
  );
});

describeEtcd('a store on plaintext etcd', () => {
  let cluster: EtcdCluster;
  beforeAll(async () => (cluster = await EtcdCluster.start({ members: 1 })));
  afterAll(() => cluster.stop());

  it('is refused over https:// by an endpoint without TLS', () =>
    expect(
      openAndWrite({ endpoints: cluster.endpoints.map((url) => url.replace('http', 'https')) }),
    ).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('does not use TLS'),
    }));

  it('is refused when the cluster holds keys of other applications', async () => {
    await cluster.etcdctl('put', '/registry/pods/a', 'b');
    await expect(openAndWrite({ endpoints: cluster.endpoints })).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('holds the key "/registry/pods/a"'),
    });
    await cluster.etcdctl('del', '/registry/pods/a');
  });

  it('leaves etcd as it was when a mistyped prefix is refused', async () => {
    const { endpoints } = cluster;
    await openAndWrite({ endpoints });
    await expect(openAndWrite({ endpoints, prefix: '/cloudles' })).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringContaining('holds the key "/cloudless.store"'),
    });
    await openAndWrite({ endpoints });
  });

  it('is not created when it must exist', async () => {
    const options = { endpoints: cluster.endpoints, prefix: '/none', allowForeignKeys: true };
    await expect(openAndWrite({ ...options, mustExist: true })).rejects.toMatchObject({
      kind: 'notFound',
      message: expect.stringContaining('etcd has no store under the prefix /none'),
    });
    expect(await cluster.etcdctl('get', '/none.store')).toBe('');
  });

  it('fails as unavailable when no endpoint listens', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    await expect(openAndWrite({ endpoints: [`http://127.0.0.1:${port}`] })).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(`http://127.0.0.1:${port}: cannot be reached`),
    });
  });
});
