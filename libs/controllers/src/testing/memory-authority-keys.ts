import { CloudlessError } from '@cloudless/base';
import { CertificateAuthority, type AuthorityPems } from '@cloudless/identity/x509';
import type { AuthorityKeys } from '../identity/cluster-identities.js';

/** Keys of a certificate authority in memory instead of files. They survive a restart of a test. */
export class MemoryAuthorityKeys implements AuthorityKeys {
  private readonly generations = new Map<number, AuthorityPems>();

  constructor(
    private readonly nowMs: () => number,
    private readonly trustDomain = 'cloudless',
  ) {}

  list(): Promise<readonly number[]> {
    return Promise.resolve([...this.generations.keys()].sort((a, b) => a - b));
  }

  load(generation: number): Promise<CertificateAuthority> {
    const pems = this.generations.get(generation);
    if (pems === undefined) {
      return Promise.reject(
        new CloudlessError('precondition', `no files of generation ${generation}`),
      );
    }
    const { trustDomain } = this;
    return CertificateAuthority.load(pems, { trustDomain, generation, nowMs: this.nowMs() });
  }

  async create(generation: number): Promise<CertificateAuthority> {
    if (this.generations.has(generation)) throw new CloudlessError('exists', 'never overwritten');
    const { trustDomain } = this;
    const { authority, ...pems } = await CertificateAuthority.create({
      trustDomain,
      generation,
      nowMs: this.nowMs(),
    });
    this.generations.set(generation, pems);
    return authority;
  }

  read(generation: number): Promise<AuthorityPems> {
    const pems = this.generations.get(generation);
    return pems === undefined
      ? Promise.reject(new CloudlessError('precondition', `no files of generation ${generation}`))
      : Promise.resolve(pems);
  }

  async store(generation: number, pems: AuthorityPems): Promise<CertificateAuthority> {
    this.generations.set(generation, pems);
    return this.load(generation);
  }

  removeBefore(generation: number): Promise<readonly number[]> {
    const retired = [...this.generations.keys()].filter((each) => each < generation);
    for (const each of retired) this.generations.delete(each);
    return Promise.resolve(retired);
  }

  /** Deletes the files of a generation, as a broken disk does. */
  remove(generation: number): void {
    this.generations.delete(generation);
  }
}
