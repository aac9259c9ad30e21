import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { SecretScan, listProcessTree } from './support/secret-scan.js';
import { RunningProgram } from './support/processes.js';

const SECRET = 'kD2mSPfZ0gq4rYw8vXcN1tJ7uLbA5eHiO3xQ6zWnTyM';
const TOKEN = `cl1.abcdefghijkl.${SECRET}.${'a1'.repeat(32)}`;
const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const KEY_PEM = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
const SCALAR = Buffer.from(privateKey.export({ format: 'jwk' }).d ?? '', 'base64url');

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'secret-scan-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** Returns a scan for the token and the key, which are read from files as in a real directory. */
function createScan(): SecretScan {
  const secrets = join(directory, 'secrets');
  mkdirSync(join(secrets, 'ca'), { recursive: true });
  writeFileSync(join(secrets, 'join-command'), `cloudless-agent run --join-token ${TOKEN}\n`);
  writeFileSync(join(secrets, 'ca', 'root.key'), KEY_PEM);
  const scan = new SecretScan();
  scan.addSecretFiles(secrets, /^(join-command|.*\.key)$/);
  expect(scan.secrets).toHaveLength(2);
  return scan;
}

describe('scan for secrets', () => {
  it.each([
    { place: 'a token', text: `error: ${TOKEN} is not valid` },
    { place: 'the secret part of a token', text: `secret=${SECRET}` },
    { place: 'a token in base64', text: Buffer.from(`xy${TOKEN}`).toString('base64') },
    {
      place: 'the bytes of a token in hex',
      text: Buffer.from(SECRET, 'base64url').toString('hex'),
    },
    { place: 'a key in PEM', text: KEY_PEM },
    { place: 'a key in PEM inside JSON', text: JSON.stringify({ key: KEY_PEM }) },
    { place: 'one line of a key in PEM', text: KEY_PEM.split('\n')[1] ?? '' },
    { place: 'the scalar of a key in hex', text: SCALAR.toString('hex') },
    { place: 'the scalar of a key in base64url', text: `"d":"${SCALAR.toString('base64url')}"` },
  ])('finds $place', ({ text }) => {
    const scan = createScan();
    scan.addText('log', text);
    expect(scan.findings.map(({ where }) => where)).toContain('log');
    expect(JSON.stringify(scan.findings)).not.toContain(SECRET);
  });

  it('finds the bytes of a key in a file below a directory, and in compressed files', () => {
    const scan = createScan();
    mkdirSync(join(directory, 'data', 'deep'), { recursive: true });
    writeFileSync(
      join(directory, 'data', 'deep', 'raw'),
      Buffer.concat([Buffer.alloc(99), SCALAR]),
    );
    writeFileSync(join(directory, 'data', 'log.gz'), gzipSync(TOKEN));
    scan.addDirectory(join(directory, 'data'));
    expect(new Set(scan.findings.map(({ where }) => where))).toEqual(
      new Set([
        join(directory, 'data', 'deep', 'raw'),
        `${join(directory, 'data', 'log.gz')} (gzip)`,
      ]),
    );
  });

  it('leaves out only the allowed paths', () => {
    const scan = createScan();
    scan.addDirectory(directory, (path) => path.endsWith('.key'));
    expect(new Set(scan.findings.map(({ where }) => where))).toEqual(
      new Set([join(directory, 'secrets', 'join-command')]),
    );
  });

  it('goes on when files vanish during the scan, and refuses a directory that does not exist', () => {
    const scan = createScan();
    mkdirSync(join(directory, 'data'));
    for (const name of ['first', 'second']) writeFileSync(join(directory, 'data', name), TOKEN);
    scan.addDirectory(join(directory, 'data'), () => {
      rmSync(join(directory, 'data', 'first'), { force: true });
      return false; // leaves out nothing
    });
    expect(scan.findings.map(({ where }) => where)).toContain(join(directory, 'data', 'second'));
    expect(() => scan.addDirectory(join(directory, 'other'))).toThrow('ENOENT');
  });

  it('finds nothing in other text, and counts what it has read', () => {
    const scan = createScan();
    scan.addText('log', `cl1.abcdefghijkl ${'a1'.repeat(32)} ${KEY_PEM.split('\n')[0]}`);
    expect(scan.findings).toEqual([]);
    expect(scan.scannedBytes).toBeGreaterThan(80);
  });

  it('finds a token in the arguments and the environment of a child process', async () => {
    const scan = createScan();
    const program = RunningProgram.start(
      'sh',
      ['-c', 'TOKEN_COPY="$1" sleep 600 & echo started; wait', 'sh', TOKEN],
      {},
    );
    await program.waitForLine((line) => line === 'started');
    const tree = listProcessTree(program.pid);
    expect(tree.length).toBe(2);
    scan.addProcesses(tree);
    const places = new Set(scan.findings.map(({ where }) => where.split(' ')[0]));
    expect(places).toEqual(new Set(['cmdline', 'environ']));
    for (const pid of tree) process.kill(pid, 'SIGKILL');
    await program.exited;
  });
});
