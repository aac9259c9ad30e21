import { createClient, createRouterTransport } from '@connectrpc/connect';
import { UserService } from '@cloudless/api';
import type { IssueUserCertificateRequest, UserClient } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { LIFE_MS, TestIssuer, anIdentity, formatIdentityFile } from '../testing/an-identity.js';
import { MemoryFiles } from '../testing/memory-files.js';
import { NOW_MS } from '../testing/run-cli.js';
import { CurrentIdentity } from './current-identity.js';
import { IdentityRenewal } from './renewal.js';
import type { StoredIdentity } from './stored-identity.js';

const DIRECTORY = '/home/me/.config/cloudless/identities/prod';
const PATH = `${DIRECTORY}/identity.json`;
const PENDING = `${DIRECTORY}/pending-key.json`;

/** One command of a user with an identity that was issued at {@link NOW_MS}. */
class TestCommand {
  readonly current: CurrentIdentity;
  readonly renewal: IdentityRenewal;

  constructor(
    readonly clock: ManualClock,
    files: Record<string, string>,
    client: UserClient,
    identity = anIdentity(NOW_MS),
  ) {
    files[PATH] ??= formatIdentityFile(identity);
    const signal = new AbortController().signal;
    const io = { clock, files: new MemoryFiles(files), signal };
    this.current = new CurrentIdentity(io, DIRECTORY, identity);
    this.renewal = new IdentityRenewal(io, this.current, () => client);
  }
}

/** Waits until no command has an attempt in progress. */
async function settle(...commands: readonly TestCommand[]): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    for (const { renewal } of commands) await renewal.waitForAttempt();
  }
}

const read = (files: Record<string, string>): StoredIdentity =>
  JSON.parse(files[PATH] ?? '') as StoredIdentity;

describe('IdentityRenewal', () => {
  let clock: ManualClock;
  let issuer: TestIssuer;
  let files: Record<string, string>;
  let isFailing: boolean;
  let client: UserClient;
  beforeEach(async () => {
    clock = new ManualClock(NOW_MS);
    issuer = await TestIssuer.create(() => clock.wallTime());
    files = {};
    isFailing = false;
    client = createClient(
      UserService,
      createRouterTransport(({ service }) => {
        service(UserService, {
          issueUserCertificate: async (request: IssueUserCertificateRequest) => {
            const response = await issuer.issueUserCertificate(request);
            if (isFailing) throw new Error('the reply is lost');
            return response;
          },
        });
      }),
    );
  });

  it('renews nothing in the first half of the life of the certificate', async () => {
    const command = new TestCommand(clock, files, client);
    command.renewal.start();
    await clock.advance(LIFE_MS / 2 - 1_000);
    await settle(command);
    expect(issuer.requests).toEqual([]);
    await command.renewal.finish(0);
  });

  it('renews a certificate that is past half of its life at the start of a command', async () => {
    await clock.advance(LIFE_MS * 0.6);
    const command = new TestCommand(clock, files, client);
    command.renewal.start();
    await settle(command);
    expect(read(files).notAfterMs).toBe(clock.wallTime() + LIFE_MS);
    expect(command.current.clientIdentity.chainPem).toBe(read(files).chainPem);
    expect(Object.keys(files)).toEqual([PATH]);
    await command.renewal.finish(0);
  });

  it('renews during a long command, again and again', async () => {
    const command = new TestCommand(clock, files, client);
    command.renewal.start();
    for (let day = 0; day < 30; day += 1) {
      await clock.advance(86_400_000);
      await settle(command);
      expect(read(files).notAfterMs).toBeGreaterThan(clock.wallTime() + LIFE_MS * 0.35);
    }
    expect(issuer.requests.length).toBeGreaterThanOrEqual(7);
    await command.renewal.finish(0);
  });

  it('asks for the same key after a lost reply, in another process too', async () => {
    await clock.advance(LIFE_MS * 0.6);
    isFailing = true;
    const first = new TestCommand(clock, files, client);
    first.renewal.start();
    await settle(first);
    await first.renewal.finish(0);
    expect(read(files).notAfterMs).toBe(NOW_MS + LIFE_MS);
    expect(files[PENDING]).toBeDefined();
    isFailing = false;
    const second = new TestCommand(clock, files, client);
    second.renewal.start();
    await settle(second);
    await second.renewal.finish(0);
    const [lost, answered] = issuer.requests.map(({ csr }) => Buffer.from(csr).toString('hex'));
    expect(answered).toBe(lost);
    expect(read(files).notAfterMs).toBe(clock.wallTime() + LIFE_MS);
    expect(Object.keys(files)).toEqual([PATH]);
  });

  it('renews once when several processes start at once', async () => {
    await clock.advance(LIFE_MS * 0.6);
    const commands = Array.from({ length: 5 }, () => new TestCommand(clock, files, client));
    for (const command of commands) command.renewal.start();
    await settle(...commands);
    expect(issuer.requests).toHaveLength(1);
    // The others find the result with their next attempt.
    await clock.advance(LIFE_MS * 0.06);
    await settle(...commands);
    expect(issuer.requests).toHaveLength(1);
    for (const command of commands) {
      expect(command.current.stored.notAfterMs).toBe(read(files).notAfterMs);
      await command.renewal.finish(0);
    }
  });

  it('tries again while the coordinator does not answer', async () => {
    await clock.advance(LIFE_MS * 0.6);
    isFailing = true;
    const command = new TestCommand(clock, files, client);
    command.renewal.start();
    await settle(command);
    for (let attempt = 0; attempt < 3; attempt += 1) {
      await clock.advance(LIFE_MS * 0.051);
      await settle(command);
    }
    expect(issuer.requests).toHaveLength(4);
    await command.renewal.finish(0);
  });

  it('renews once, before half of the life, when the coordinator asks for a renewal', async () => {
    const command = new TestCommand(clock, files, client);
    command.renewal.start();
    await clock.advance(3_600_000);
    for (let response = 0; response < 3; response += 1) command.renewal.renewNow();
    await settle(command);
    expect(issuer.requests).toHaveLength(1);
    expect(read(files).notAfterMs).toBe(clock.wallTime() + LIFE_MS);
    await command.renewal.finish(0);
  });

  it('does not replace the identity of another login of the same context', async () => {
    await clock.advance(LIFE_MS * 0.6);
    const command = new TestCommand(
      clock,
      files,
      client,
      anIdentity(NOW_MS, { credentialId: 'another0000' }),
    );
    const before = files[PATH];
    command.renewal.start();
    await settle(command);
    expect(files[PATH]).toBe(before);
    await command.renewal.finish(0);
  });
});
