import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import {
  CertificateCopies,
  CERTIFICATES_FOLDER,
  CERTIFICATES_KEY_FILE,
  removeCertificateCopies,
  type ReceivedCertificate,
} from './certificate-copies.js';

const CANARY = 'canary-key';

const aCertificate = (version: number, secretUid = 'u1'): ReceivedCertificate => ({
  version: { secretUid, version },
  pair: { certificate: `certificate ${version}`, key: `${CANARY} ${version}` },
});

describe('copies of certificates', () => {
  let directory: string;
  let clock: ManualClock;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'certificates-'));
    clock = new ManualClock();
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  const open = () => new CertificateCopies(directory, { clock, log: silentLog });
  const reload = async () => Object.fromEntries(await open().load());
  const listFiles = () =>
    readdirSync(join(directory, CERTIFICATES_FOLDER)).map((name) =>
      join(directory, CERTIFICATES_FOLDER, name),
    );

  it('are loaded by the next process, follow changes, and show no key', async () => {
    const copies = open();
    expect([...(await copies.load())]).toEqual([]);
    const received = new Map([
      ['shop/tls', aCertificate(1)],
      [`shop/${'long'.repeat(63)}`, aCertificate(7)],
    ]);
    copies.keep(received, false);
    received.set('shop/tls', aCertificate(2));
    copies.keep(received, false);
    await copies.settled;
    expect(await reload()).toEqual(Object.fromEntries(received));
    for (const file of listFiles()) {
      expect(readFileSync(file, 'utf8')).not.toContain(CANARY);
      expect(Buffer.from(readFileSync(file, 'utf8'), 'base64').toString()).not.toContain(CANARY);
      expect(statSync(file).mode & 0o777).toBe(0o600);
    }
    expect(statSync(join(directory, CERTIFICATES_KEY_FILE)).mode & 0o777).toBe(0o600);
    expect(statSync(join(directory, CERTIFICATES_FOLDER)).mode & 0o777).toBe(0o700);
  });

  it('of other secrets are removed only where that is permitted', async () => {
    const first = open();
    await first.load();
    first.keep(new Map([['shop/tls', aCertificate(1)]]), false);
    await first.settled;
    const copies = open();
    await copies.load();
    copies.keep(new Map(), false);
    await copies.settled;
    expect(Object.keys(await reload())).toEqual(['shop/tls']);
    copies.keep(new Map([['shop/new', aCertificate(1)]]), true);
    await copies.settled;
    expect(Object.keys(await reload())).toEqual(['shop/new']);
    expect(listFiles()).toHaveLength(1);
  });

  it.each<{ name: string; damage: (text: string) => string }>([
    { name: 'another version', damage: (text) => text.replace('"version":1', '"version":2') },
    { name: 'another secret', damage: (text) => text.replace('shop/tls', 'shop/own') },
    { name: 'half of its bytes', damage: (text) => text.slice(0, text.length / 2) },
    { name: 'another format', damage: (text) => text.replace('"format":1', '"format":2') },
    { name: 'nothing', damage: () => '' },
    { name: 'other JSON', damage: () => 'null' },
  ])('are ignored with $name, then replaced or removed', async ({ damage }) => {
    const copies = open();
    await copies.load();
    copies.keep(new Map([['shop/tls', aCertificate(1)]]), false);
    await copies.settled;
    const [file = ''] = listFiles();
    const damaged = damage(readFileSync(file, 'utf8'));
    writeFileSync(file, damaged);
    expect(await reload()).toEqual({});
    const replacing = open();
    await replacing.load();
    replacing.keep(new Map([['shop/tls', aCertificate(3)]]), false);
    await replacing.settled;
    expect(await reload()).toEqual({ 'shop/tls': aCertificate(3) });
    writeFileSync(file, damaged);
    const removing = open();
    await removing.load();
    removing.keep(new Map(), true);
    await removing.settled;
    expect(listFiles()).toEqual([]);
  });

  it('are worthless after the loss of their key', async () => {
    const copies = open();
    await copies.load();
    copies.keep(new Map([['shop/tls', aCertificate(1)]]), false);
    await copies.settled;
    await rm(join(directory, CERTIFICATES_KEY_FILE));
    expect(await reload()).toEqual({});
  });

  it('have one key, which the first process creates before there is a copy', async () => {
    await open().load();
    const key = readFileSync(join(directory, CERTIFICATES_KEY_FILE));
    await open().load();
    expect(readFileSync(join(directory, CERTIFICATES_KEY_FILE))).toEqual(key);
  });

  it('that could not be stored are stored later', async () => {
    const copies = open();
    await copies.load();
    const blocker = join(directory, CERTIFICATES_FOLDER);
    writeFileSync(blocker, '');
    copies.keep(new Map([['shop/tls', aCertificate(1)]]), true);
    await copies.settled;
    expect(clock.pendingTimers).toBe(1);
    await rm(blocker);
    await clock.advance(30_000);
    await copies.settled;
    expect(await reload()).toEqual({ 'shop/tls': aCertificate(1) });
    expect(clock.pendingTimers).toBe(0);
  });

  it('are neither stored nor removed after a stop', async () => {
    const copies = open();
    await copies.load();
    copies.keep(new Map([['shop/tls', aCertificate(1)]]), true);
    await copies.settled;
    copies.stop();
    copies.keep(new Map([['shop/other', aCertificate(1)]]), true);
    await copies.settled;
    expect(Object.keys(await reload())).toEqual(['shop/tls']);
  });

  it('are removed with their key', async () => {
    await removeCertificateCopies(directory);
    await mkdir(join(directory, CERTIFICATES_FOLDER));
    writeFileSync(join(directory, CERTIFICATES_FOLDER, 'x'), '');
    writeFileSync(join(directory, CERTIFICATES_KEY_FILE), '');
    await removeCertificateCopies(directory);
    expect(readdirSync(directory)).toEqual([]);
  });
});
