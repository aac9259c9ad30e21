import { once } from 'node:events';
import * as http2 from 'node:http2';
import * as net from 'node:net';
import type { TLSSocket } from 'node:tls';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { createClient } from '@connectrpc/connect';
import type { HandlerContext } from '@connectrpc/connect';
import { RENEW_CERTIFICATE_HEADER, UserService } from '@cloudless/api';
import { CertificateAuthority, createKeyAndCsr, readCsr } from '@cloudless/identity/x509';
import { systemClock } from '@cloudless/app-kit';
import { detectTls } from '@cloudless/rpc-node/tls-client';
import { runCli, USER_TOKEN } from '../testing/run-cli.js';
import { anIdentity, formatIdentityFile, SERVER_ID } from '../testing/an-identity.js';
import { connectLazily } from './lazy-connection.js';

const HOUR_MS = 3_600_000;
const FOLDER = '/home/me/.config/cloudless';

let authority: CertificateAuthority;
let other: CertificateAuthority;
beforeAll(async () => {
  const options = { trustDomain: 'cloudless', generation: 1, nowMs: Date.now() };
  [authority, other] = (await Promise.all(
    [1, 2].map(async () => (await CertificateAuthority.create(options)).authority),
  )) as [CertificateAuthority, CertificateAuthority];
});

const servers: net.Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function listen(server: net.Server): Promise<string> {
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

/** Issues a certificate of the test cluster with a new key. */
async function issue(kind: 'user' | 'controller' | 'node', id: string, offsetMs = 0) {
  const { keyPem, csr } = await createKeyAndCsr();
  const { publicKey } = await readCsr(csr);
  const nowMs = Date.now() + offsetMs;
  const usage = kind === 'user' ? 'client' : 'both';
  const spiffe = { trustDomain: 'cloudless', kind, id } as const;
  const { pem } = await authority.issue({
    ...{ id: spiffe, publicKey, lifetimeMs: HOUR_MS, nowMs, usage },
  });
  return { keyPem, chainPem: pem };
}

/** Starts a coordinator with TLS that answers WhoAmI with what the client has presented. */
async function startServer(
  options: { offsetMs?: number; asksForRenewal?: boolean; kind?: 'controller' | 'node' } = {},
) {
  const { kind = 'controller', offsetMs } = options;
  const { keyPem, chainPem } = await issue(kind, 'coordinator', offsetMs);
  const seen: { authorization: string | undefined; subject: string | undefined }[] = [];
  const whoAmI = (_request: unknown, { responseHeader }: HandlerContext) => {
    if (options.asksForRenewal === true) responseHeader.set(RENEW_CERTIFICATE_HEADER, 'true');
    return { principal: 'user/ada' };
  };
  const handler = connectNodeAdapter({
    routes: (router) => void router.service(UserService, { whoAmI }),
  });
  const server = http2.createSecureServer(
    {
      key: keyPem,
      cert: chainPem,
      ca: authority.rootPem,
      minVersion: 'TLSv1.3',
      requestCert: true,
      rejectUnauthorized: false,
    },
    (request, response) => {
      const socket = request.stream.session?.socket as TLSSocket | undefined;
      seen.push({
        authorization: request.headers.authorization,
        subject: socket?.getPeerX509Certificate()?.subjectAltName,
      });
      handler(request, response);
    },
  );
  server.on('sessionError', () => undefined);
  return { address: await listen(server as unknown as net.Server), seen };
}

/** Runs `whoami` over a real connection. */
function whoAmI(
  server: string,
  options: {
    readonly env?: Record<string, string>;
    readonly files?: Record<string, string>;
    readonly argv?: readonly string[];
  },
) {
  return runCli(['whoami', ...(options.argv ?? []), '-o', 'json'], {
    ...options,
    env: { CLOUDLESS_SERVER: server, ...options.env },
    clock: systemClock,
    connect: connectLazily,
    detectTls,
  });
}

const pinned = (sha256: string): string => USER_TOKEN.replace(/[0-9a-f]{64}$/, sha256);

/** Files of a login with a certificate of the test cluster. */
async function logIn(bundlePem = authority.rootPem, serverIds: readonly string[] = [SERVER_ID]) {
  const identity = anIdentity(Date.now(), {
    ...(await issue('user', 'ada')),
    bundlePem,
    serverIds,
  });
  return {
    [`${FOLDER}/config.yaml`]:
      'current: prod\ncontexts:\n  prod: { identityDir: identities/prod }\n',
    [`${FOLDER}/identities/prod/identity.json`]: formatIdentityFile(identity),
  };
}

describe('cloudlessctl over TLS', () => {
  it('presents the client certificate of the identity', async () => {
    const { address, seen } = await startServer();
    const result = await whoAmI(`https://${address}`, { files: await logIn() });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(seen).toEqual([
      { authorization: undefined, subject: 'URI:spiffe://cloudless/user/ada' },
    ]);
  });

  it.each([{ asksForRenewal: false }, { asksForRenewal: true }])(
    'notices a coordinator that asks for a renewal: $asksForRenewal',
    async ({ asksForRenewal }) => {
      const { address } = await startServer({ asksForRenewal });
      const identity = anIdentity(Date.now(), {
        ...(await issue('user', 'ada')),
        bundlePem: authority.rootPem,
      });
      let requests = 0;
      const connection = connectLazily(`https://${address}`, {
        kind: 'certificate',
        getIdentity: () => identity,
        onRenewalRequested: () => (requests += 1),
      });
      await createClient(UserService, connection.transport).whoAmI({});
      connection.close();
      expect(requests).toBe(asksForRenewal ? 1 : 0);
    },
  );

  it('uses a new connection after another process has renewed the identity', async () => {
    const { address, seen } = await startServer();
    const names = ['ada', 'ada.renewed'];
    const identities = await Promise.all(
      names.map(async (name) =>
        anIdentity(Date.now(), { ...(await issue('user', name)), bundlePem: authority.rootPem }),
      ),
    );
    let reloads = 0;
    const connection = connectLazily(`https://${address}`, {
      kind: 'certificate',
      getIdentity: () => identities[reloads] ?? anIdentity(0),
      countReloads: () => reloads,
    });
    const client = createClient(UserService, connection.transport);
    await client.whoAmI({});
    await client.whoAmI({});
    reloads = 1;
    await client.whoAmI({});
    connection.close();
    expect(seen.map(({ subject }) => subject?.split('/').at(-1))).toEqual([
      ...['ada', 'ada', 'ada.renewed'],
    ]);
  });

  it('sends a token to the server whose root the token names', async () => {
    const { address, seen } = await startServer();
    const token = pinned(authority.rootSha256);
    const result = await whoAmI(`https://${address}`, { env: { CLOUDLESS_TOKEN: token } });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(seen).toEqual([{ authorization: `Bearer ${token}`, subject: undefined }]);
  });

  it('sends a token to a server of --ca-file, whatever root the token names', async () => {
    const { address } = await startServer();
    const result = await whoAmI(`https://${address}`, {
      env: { CLOUDLESS_TOKEN: pinned(other.rootSha256) },
      files: { '/ca.crt': other.rootPem + authority.rootPem },
      argv: ['--ca-file', '/ca.crt'],
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
  });

  it('sends nothing to a server of another root than the token names', async () => {
    const { address, seen } = await startServer();
    const token = pinned(other.rootSha256);
    const result = await whoAmI(`https://${address}`, { env: { CLOUDLESS_TOKEN: token } });
    expect(result).toMatchObject({ exitCode: 5, stdout: '' });
    expect(result.stderr).toBe(
      `cloudlessctl: the server at https://${address} is not trusted: its certificate is not of the certificate authority that the token names; check the address, and that the token was created by this cluster. Nothing was sent. If this is the right server and its certificate authority has changed, log in again with a new token (cloudlessctl login https://${address}), or give its new root with --ca-file (an administrator prints it with: cloudlessctl admin ca --pem)\n`,
    );
    expect(seen).toEqual([]);
  });

  it('names the file when --ca-file does not contain the root of the server', async () => {
    const { address, seen } = await startServer();
    const result = await whoAmI(`https://${address}`, {
      env: { CLOUDLESS_TOKEN: pinned(authority.rootSha256) },
      files: { '/ca.crt': other.rootPem },
      argv: ['--ca-file', '/ca.crt'],
    });
    expect(result).toMatchObject({ exitCode: 5, stdout: '' });
    expect(result.stderr).toBe(
      `cloudlessctl: the server at https://${address} is not trusted: its certificate is of no certificate authority in the CA file /ca.crt; check the address, and that the file contains the root of this cluster. Nothing was sent. Give the root of this cluster with --ca-file (an administrator prints it with: cloudlessctl admin ca --pem), or give no file, to trust the root that the token names\n`,
    );
    expect(seen).toEqual([]);
  });

  it('sends nothing to a server of another certificate authority than the identity', async () => {
    const { address, seen } = await startServer();
    const result = await whoAmI(`https://${address}`, { files: await logIn(other.rootPem) });
    expect(result).toMatchObject({ exitCode: 5 });
    expect(result.stderr).toMatch(
      /^cloudlessctl: the server at https:\S+ is not trusted: the certificate is of another certificate authority.*\. Nothing was sent\. If this is the right server and its certificate authority has changed, log in again with a new token \(cloudlessctl login https:\S+\), or give its new root with --ca-file/,
    );
    expect(seen).toEqual([]);
  });

  it('trusts a coordinator that has joined the cluster after the login', async () => {
    const { address } = await startServer();
    const files = await logIn(authority.rootPem, ['spiffe://cloudless/controller/other']);
    expect(await whoAmI(`https://${address}`, { files })).toMatchObject({ exitCode: 0 });
  });

  it('sends nothing to a server of the cluster that is no coordinator', async () => {
    const { address, seen } = await startServer({ kind: 'node' });
    const result = await whoAmI(`https://${address}`, { files: await logIn() });
    expect(result.stderr).toContain('the certificate is of the node "coordinator"');
    expect(result.exitCode).toBe(5);
    expect(seen).toEqual([]);
  });

  it.each([
    {
      name: 'an expired certificate of the server',
      offsetMs: -2 * HOUR_MS,
      message:
        /the certificate expired at \S+, and the clock here shows \S+\. Nothing was sent\. Compare the clocks of both machines; a coordinator renews its certificate itself, and its log names a failure\n$/,
    },
    {
      name: 'a certificate of the server that is not valid yet',
      offsetMs: 3 * HOUR_MS,
      message:
        /the clock of this machine is at least 17\d min behind the clock of the server\. Nothing was sent\. Set the clock that is wrong, and try again\n$/,
    },
  ])('compares the clocks for $name', async ({ offsetMs, message }) => {
    const { address } = await startServer({ offsetMs });
    const result = await whoAmI(`https://${address}`, { files: await logIn() });
    expect(result).toMatchObject({ exitCode: 5, stderr: expect.stringMatching(message) });
  });

  it('names https:// for a plaintext call to a port with TLS', async () => {
    const { address } = await startServer();
    expect(await whoAmI(`http://${address}`, {})).toMatchObject({
      exitCode: 5,
      stderr: `cloudlessctl: the server at http://${address} speaks TLS; use https://${address}\n`,
    });
  });

  it('names http:// for a call with TLS to a plaintext port', async () => {
    const address = await listen(http2.createServer() as unknown as net.Server);
    const result = await whoAmI(`https://${address}`, { files: await logIn() });
    expect(result.exitCode).toBe(5);
    expect(result.stderr).toContain('a coordinator with --tls off has an address with http://');
  });

  it('names the settings when the server is not reached', async () => {
    const address = await listen(net.createServer());
    servers.splice(0).forEach((server) => server.close());
    const result = await whoAmI(`https://${address}`, { files: await logIn() });
    expect(result.exitCode).toBe(5);
    expect(result.stderr).toContain('connection refused');
  });

  it('ends at --timeout when a server accepts the connection and says nothing', async () => {
    const address = await listen(net.createServer());
    for (const options of [
      { files: await logIn() },
      { env: { CLOUDLESS_TOKEN: pinned(authority.rootSha256) } },
    ]) {
      const argv = ['--timeout', '100ms'];
      const result = await whoAmI(`https://${address}`, { ...options, argv });
      expect(result).toMatchObject({ exitCode: 6 });
    }
  });
});
