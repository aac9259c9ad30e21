import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makePrivateDirectory, readSecretFile, writeSecretFile } from './files/index.js';
import { createToken, formatSpiffeId, hashToken, matchesToken, parseToken } from './index.js';
import {
  CertificateAuthority,
  PeerVerifier,
  createKeyAndCsr,
  decodeCertificates,
  readCsr,
} from './x509/index.js';

const nowMs = Date.UTC(2026, 0, 1);

it('README of identity enrols a node and verifies its certificate as shown', async () => {
  // <certificates>
  // On the node: the private key never leaves the machine.
  const { keyPem, csr } = await createKeyAndCsr();
  expect(keyPem).toContain('PRIVATE KEY');

  // On the coordinator, which decides the identity and the lifetime.
  const { authority, rootPem } = await CertificateAuthority.create({
    trustDomain: 'cloudless',
    generation: 1,
    nowMs,
  });
  const { publicKey } = await readCsr(csr);
  const id = { trustDomain: 'cloudless', kind: 'node', id: 'n1' } as const;
  const lifetimeMs = 24 * 60 * 60 * 1000;
  const chain = await authority.issue({ id, publicKey, lifetimeMs, nowMs, usage: 'both' });

  // On a server that trusts the root, with the chain that a client presents in the handshake.
  const verifier = new PeerVerifier({ trustDomain: 'cloudless', bundlePem: rootPem });
  const chainDer = decodeCertificates(chain.pem, 'the chain');
  const peer = verifier.verify(chainDer, nowMs, { usage: 'client', kinds: ['node'] });
  expect(formatSpiffeId(peer.id)).toBe('spiffe://cloudless/node/n1');
  // </certificates>
});

it('README of identity creates a token and finds it again as shown', () => {
  const caSha256 = 'ab'.repeat(32);
  const tokenSecret = randomBytes(32);
  // <tokens>
  const { id, secret, text } = createToken('join', randomBytes, [caSha256]);
  expect(text).toBe(`cl1.${id}.${secret}.${caSha256}`);
  const stored = hashToken(tokenSecret, 'join', id, secret); // the text itself is not stored

  const token = parseToken(text);
  if (token === undefined) throw new Error('not a token');
  expect(matchesToken(tokenSecret, stored, token.kind, token.id, token.secret)).toBe(true);
  // </tokens>
});

it('README of identity writes and reads a key file as shown', async () => {
  const parent = await mkdtemp(join(tmpdir(), 'cloudless-readme-'));
  const directory = join(parent, 'identity');
  const { keyPem } = await createKeyAndCsr();
  // <files>
  await makePrivateDirectory(directory); // mode 0700
  await writeSecretFile(join(directory, 'node.key'), keyPem); // mode 0600, never overwrites
  expect(Buffer.from(await readSecretFile(join(directory, 'node.key'))).toString()).toBe(keyPem);
  // </files>
  await rm(parent, { recursive: true });
});

it.each(['certificates', 'tokens', 'files'])(
  'README of identity contains the example about %s that this spec runs',
  async (name) => {
    const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
    const example =
      new RegExp(`// <${name}>\n([^]*?) *// </${name}>`, 'u')
        .exec(spec)?.[1]
        ?.replaceAll(/^ {2}/gmu, '') ?? 'no example';
    expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
  },
);
