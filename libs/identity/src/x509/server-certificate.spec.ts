import { X509Certificate } from 'node:crypto';
import { connect, createServer } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { TestAuthority } from '../testing/index.js';
import {
  CertificateAuthority,
  PeerVerifier,
  createServerCertificate,
  encodeCertificates,
  readChain,
  splitHosts,
} from './index.js';

const NOW_MS = Date.UTC(2026, 0, 2);
const ID = { trustDomain: 'cloudless', kind: 'controller', id: 'coordinator' } as const;

describe('splitHosts', () => {
  it('separates names from addresses and drops repetitions', () => {
    const hosts = ['Node-1.example.com', 'node-1.example.com', '[::1]', '::1', '10.0.0.1'];
    expect(splitHosts(hosts)).toEqual({
      dnsNames: ['node-1.example.com'],
      ipAddresses: ['::1', '10.0.0.1'],
    });
  });

  it('refuses an empty host', () => {
    expect(() => splitHosts(['a', ''])).toThrow('a host of a server certificate is empty');
  });
});

describe('createServerCertificate', () => {
  it('serves TLS 1.3 to a client that checks the host name, and to a peer verifier', async () => {
    const nowMs = new Date().getTime();
    const { authority, rootPem } = await CertificateAuthority.create({
      ...{ trustDomain: 'cloudless', generation: 1, nowMs },
    });
    const { keyPem, chain } = await createServerCertificate(authority, {
      ...{ id: ID, hosts: ['localhost', '127.0.0.1'], lifetimeMs: 3_600_000, nowMs },
    });
    const server = createServer({ key: keyPem, cert: chain.pem, minVersion: 'TLSv1.3' });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    try {
      const socket = await new Promise<TLSSocket>((resolve, reject) => {
        const client = connect({ host: '127.0.0.1', port, ca: rootPem }, () => resolve(client));
        client.on('error', reject);
      });
      expect(socket.authorized).toBe(true);
      expect(socket.getProtocol()).toBe('TLSv1.3');
      const verifier = new PeerVerifier({ trustDomain: 'cloudless', bundlePem: rootPem });
      const leaf = socket.getPeerX509Certificate()!;
      const issuing = leaf.issuerCertificate!;
      expect(verifier.verify([leaf.raw, issuing.raw], nowMs, { usage: 'server' }).id).toEqual(ID);
      socket.destroy();
    } finally {
      server.close();
    }
  });

  it('refuses a host that is neither a name nor an address', async () => {
    const { authority } = await TestAuthority.create({ nowMs: NOW_MS });
    const create = createServerCertificate(authority, {
      ...{ id: ID, hosts: ['a b'], lifetimeMs: 1000, nowMs: NOW_MS },
    });
    await expect(create).rejects.toMatchObject({
      kind: 'invalid',
      message: '"a b" is not a DNS name',
    });
  });
});

describe('readChain', () => {
  it('reads what was issued', async () => {
    const test = await TestAuthority.create({ nowMs: NOW_MS });
    const { chain } = await createServerCertificate(test.authority, {
      ...{ id: ID, hosts: [], lifetimeMs: 60_000, nowMs: NOW_MS },
    });
    expect(readChain(`a comment\n${chain.pem}`)).toEqual({
      ...chain,
      id: ID,
      rootPem: test.bundlePem,
    });
    expect(new X509Certificate(chain.pem).subjectAltName).toBe(
      'URI:spiffe://cloudless/controller/coordinator',
    );
  });

  it('refuses other files', async () => {
    expect(() => readChain('')).toThrow('the certificate file contains no certificate in PEM form');
    const { chainDer } = await (await TestAuthority.create({ nowMs: NOW_MS })).issue('node', 'n1');
    expect(() => readChain(encodeCertificates(chainDer.slice(0, 1)))).toThrow(
      'the certificate file has no certificate of a certificate authority after the first certificate',
    );
  });
});
