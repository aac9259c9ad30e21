// The packed programs install from files alone, without a registry and without install scripts, and
// run a workload outside of the checkout.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { packAll } from '../pack.mjs';

const folder = mkdtempSync(join(tmpdir(), 'cloudless packages '));
const prefix = join(folder, 'prefix');
const env = { PATH: `${join(prefix, 'bin')}:${process.env.PATH}`, HOME: folder };
/** Programs that were started, in the order of their start. */
const started = [];

before(async () => {
  const { coordinator, agent, cli } = await packAll(folder);
  // Install scripts may run, and the registry refuses every connection.
  const npm = ['install', '--global', '--prefix', prefix, '--registry', 'http://127.0.0.1:1'];
  const quiet = ['--no-audit', '--no-fund', '--cache', join(folder, 'cache')];
  execFileSync('npm', [...npm, ...quiet, coordinator, agent, cli], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
});
after(async () => {
  for (const child of started.reverse()) await end(child);
  rmSync(folder, { recursive: true, force: true });
});

/** Sends SIGTERM to a program, and waits for its end. */
async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await exited;
}

/** Starts a program, and resolves with the fields of the log line with a message. */
async function start(program, args, message) {
  const child = spawn(program, [...args, '--log-format', 'json'], {
    cwd: folder,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  started.push(child);
  const lines = [];
  child.stderr.on('data', (text) => lines.push(String(text)));
  for await (const line of createInterface({ input: child.stdout })) {
    lines.push(line);
    const fields = JSON.parse(line);
    if (fields.message !== message) continue;
    child.stdout.resume();
    return fields;
  }
  throw new Error(`${program} ended: ${lines.join('\n')}`);
}

/** Runs cloudlessctl from the package, and returns what it prints. */
function ctl(...args) {
  const { status, stdout, stderr } = spawnSync('cloudlessctl', args, {
    cwd: folder,
    env,
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  return stdout;
}

describe('npm packages of the programs', () => {
  for (const [program, args] of [
    ['cloudless-coordinator', ['--version']],
    ['cloudless-agent', ['version']],
    ['cloudlessctl', ['version', '--client']],
  ])
    it(`${program} prints its version`, () => {
      const { status, stdout } = spawnSync(program, args, { cwd: folder, env, encoding: 'utf8' });
      assert.equal(status, 0);
      assert.match(stdout, /^(?:cloudlessctl )?\d+\.\d+\.\d+(?:\+[0-9a-f]{12,}(?:-dirty)?)?\n$/);
    });

  it('have no install scripts, and no files of a checkout', () => {
    const installed = join(prefix, 'lib/node_modules');
    const files = readdirSync(installed, { recursive: true });
    const manifests = files.filter((file) => /(?:^|\/)package\.json$/.test(file));
    assert.ok(manifests.length > 3);
    for (const file of manifests) {
      const { scripts } = JSON.parse(readFileSync(join(installed, file), 'utf8'));
      assert.equal(scripts, undefined, file);
    }
    // npm itself adds an install script to a package with a binding.gyp
    assert.deepEqual(
      files.filter((file) => /\.(?:gyp|ts|map)$|\/\.(?!package-lock)/.test(file)),
      [],
    );
  });

  it('run a workload with logs and exec, with TLS and a store on the disk', async () => {
    const data = join(folder, 'data');
    const identity = join(data, 'coordinator', 'identity');
    const { url } = await start(
      'cloudless-coordinator',
      ['--port', '0', '--ops-port', '0', '--data-dir', join(data, 'coordinator')],
      'coordinator ready',
    );
    ctl('login', url, '--token-file', join(identity, 'admin.credential'));
    const tokenFile = join(folder, 'join-token');
    ctl('token', 'create', '--output-file', tokenFile);
    await start(
      'cloudless-agent',
      [
        ...['run', '--name', 'node-1', '--coordinator', url, '--join-token-file', tokenFile],
        ...['--data-dir', join(data, 'agent'), '--runtime', 'process'],
        // the agent cannot start without the supervisor and a network proxy that answers
        ...['--network', 'on', '--port-range', '13100-13199', '--stop-workloads-on-exit'],
      ],
      'session established',
    );
    const create = ['workload', 'create', 'hello', '--replicas', '2', '--wait', '--', 'sh', '-c'];
    ctl(...create, 'echo up; exec sleep 1000');
    assert.match(ctl('logs', 'hello'), /up/);
    assert.equal(ctl('exec', 'hello', '--', 'echo', 'inside'), 'inside\n');
    ctl('delete', 'hello', '--wait');
    assert.ok(readdirSync(join(data, 'coordinator')).includes('store.mdb'));
  });

  it('have the native package of terminals', async () => {
    const found = execFileSync(
      process.execPath,
      ['-p', `typeof require('@lydell/node-pty/requireBinary.js').requireBinary('pty.node').fork`],
      { cwd: join(prefix, 'lib/node_modules/cloudless-agent'), encoding: 'utf8' },
    );
    assert.equal(found, 'function\n');
  });
});
