import { base64Decode, base64Encode } from '@bufbuild/protobuf/wire';
import { CloudlessError } from '@cloudless/base';
import type { IdentityFileName, IdentityFiles } from './identity-files.js';
import type {
  CertificateRequest,
  IdentityFacts,
  NodeIdentity,
  TrustedRoots,
} from './node-identity.js';

/** Format version of the files; incremented by incompatible changes. */
const FORMAT = 1;

/** Everything that the identity directory holds. */
export interface StoredIdentity {
  readonly identity?: NodeIdentity;
  /** A request whose certificate has not arrived. */
  readonly request?: CertificateRequest;
}

/**
 * Stores the identity of a node so that a crash at any moment loses nothing:
 *
 * 1. A request with its key is stored before it is sent. A retry after a lost reply uses the same
 *    key, for which the coordinator counts no second use of a join token.
 * 2. `identity.json` with the new certificate is the one atomic step. Until then the old key and
 *    certificate are complete; from then on {@link load} completes the change with the key in the
 *    request.
 */
export class NodeIdentityStore {
  /** @param resetCommand - Command by which an operator removes damaged files. */
  constructor(
    private readonly files: IdentityFiles,
    private readonly resetCommand: string,
  ) {}

  /**
   * Reads the identity, and completes a change that a crash has interrupted.
   * @throws kind `internal` when a file is damaged or the key is missing.
   */
  async load(): Promise<StoredIdentity> {
    const facts = await this.readJson('identity.json', toFacts);
    const request = await this.readJson('request.json', toRequest);
    if (facts === undefined) return request === undefined ? {} : { request };
    if (request?.publicKeySha256 === facts.publicKeySha256)
      return { identity: await this.complete(facts, request) };
    const keyPem = await this.files.read('node.key');
    if (keyPem === undefined)
      throw new CloudlessError(
        'internal',
        `node.key of the identity of node ${facts.nodeId} is missing; restore the file, or run ${this.resetCommand} and join again`,
      );
    const identity = { ...facts, keyPem };
    await this.writeCopies(identity);
    return request === undefined ? { identity } : { identity, request };
  }

  /** Stores a request. Call this method before the request is sent. */
  async saveRequest(request: CertificateRequest): Promise<void> {
    const { keyPem, csr, publicKeySha256 } = request;
    await this.writeJson('request.json', { keyPem, csr: base64Encode(csr), publicKeySha256 });
  }

  /** Stores the certificate that answers `request`, and removes the request. */
  async saveIdentity(identity: NodeIdentity, request: CertificateRequest): Promise<void> {
    const { keyPem: _secret, ...facts } = identity;
    await this.writeFacts(facts);
    await this.complete(facts, request);
  }

  /** Stores a new trust bundle beside the certificate. */
  async saveTrustBundle(identity: NodeIdentity, bundle: TrustedRoots): Promise<NodeIdentity> {
    const { keyPem, ...facts } = { ...identity, trustBundle: bundle };
    await this.writeFacts(facts);
    await this.writeCopies(facts);
    return { ...facts, keyPem };
  }

  private async complete(
    facts: IdentityFacts,
    { keyPem }: CertificateRequest,
  ): Promise<NodeIdentity> {
    await this.files.write('node.key', keyPem);
    await this.writeCopies(facts);
    await this.files.remove('request.json');
    return { ...facts, keyPem };
  }

  private async writeCopies({ chainPem, trustBundle }: IdentityFacts): Promise<void> {
    const copies = { 'node.crt': chainPem, 'ca.crt': trustBundle.pem } as const;
    for (const name of ['node.crt', 'ca.crt'] as const) {
      if ((await this.files.read(name)) !== copies[name])
        await this.files.write(name, copies[name]);
    }
  }

  private writeFacts(facts: IdentityFacts): Promise<void> {
    const { trustBundle, notBeforeMs, notAfterMs, obtainedAtMs, ...rest } = facts;
    return this.writeJson('identity.json', {
      ...rest,
      notBefore: toText(notBeforeMs),
      notAfter: toText(notAfterMs),
      obtainedAt: toText(obtainedAtMs),
      trustBundleGeneration: String(trustBundle.generation),
      trustBundle: trustBundle.pem,
    });
  }

  private writeJson(name: IdentityFileName, content: object): Promise<void> {
    return this.files.write(name, `${JSON.stringify({ format: FORMAT, ...content }, null, 2)}\n`);
  }

  private async readJson<Value>(
    name: IdentityFileName,
    parse: (raw: Raw) => Value,
  ): Promise<Value | undefined> {
    const text = await this.files.read(name);
    if (text === undefined) return undefined;
    try {
      const raw: unknown = JSON.parse(text);
      if (typeof raw !== 'object' || raw === null) throw new Error('no object');
      if ((raw as Raw)['format'] !== FORMAT) throw new Error('the format is not known');
      return parse(raw as Raw);
    } catch {
      // No cause: the message of a JSON error repeats the text, which may contain a key.
      throw new CloudlessError(
        'internal',
        `${name} of the identity is damaged or has another format version; restore the file, or run ${this.resetCommand} and join again`,
      );
    }
  }
}

type Raw = Readonly<Record<string, unknown>>;

function toFacts(raw: Raw): IdentityFacts {
  const ids = raw['coordinatorIds'];
  if (!Array.isArray(ids) || !ids.every((id) => typeof id === 'string'))
    throw new Error('coordinatorIds is not valid');
  return {
    nodeId: readText(raw, 'nodeId'),
    clusterId: readText(raw, 'clusterId'),
    trustDomain: readText(raw, 'trustDomain'),
    coordinatorIds: ids,
    trustBundle: {
      generation: BigInt(readText(raw, 'trustBundleGeneration')),
      pem: readText(raw, 'trustBundle'),
    },
    chainPem: readText(raw, 'chainPem'),
    publicKeySha256: readText(raw, 'publicKeySha256'),
    notBeforeMs: readTime(raw, 'notBefore'),
    notAfterMs: readTime(raw, 'notAfter'),
    obtainedAtMs: readTime(raw, 'obtainedAt'),
  };
}

function toRequest(raw: Raw): CertificateRequest {
  return {
    keyPem: readText(raw, 'keyPem'),
    csr: base64Decode(readText(raw, 'csr')),
    publicKeySha256: readText(raw, 'publicKeySha256'),
  };
}

function readText(raw: Raw, key: string): string {
  const value = raw[key];
  if (typeof value !== 'string' || value === '') throw new Error(`${key} is missing`);
  return value;
}

function toText(timeMs: number): string {
  return new Date(timeMs).toISOString();
}

function readTime(raw: Raw, key: string): number {
  const timeMs = Date.parse(readText(raw, key));
  if (Number.isNaN(timeMs)) throw new Error(`${key} is no time`);
  return timeMs;
}
