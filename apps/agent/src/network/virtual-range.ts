import { execFile } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CloudlessError, errorMessageOf } from '@cloudless/base';
import { planRoute, type MachineRoute } from './route-plan.js';

const run = promisify(execFile);
/** Usual paths of the program of iproute2: the process of the proxy has no PATH. */
const IP_PROGRAMS = ['/usr/sbin/ip', '/sbin/ip', '/usr/bin/ip', '/bin/ip'];
/** Time limit of one call, milliseconds. */
const CALL_TIMEOUT_MS = 5_000;
/** File that names the range whose route this agent has added, so that a reset removes the route. */
const RECORD_FILE = 'route';

/**
 * Makes every address of a range an address of this machine (AnyIP): `ip route add local <range> dev
 * lo`. Does nothing for addresses that belong to the machine already, such as loopback addresses.
 * Removes the route of an earlier range.
 * @param directory - Directory in which the range is recorded.
 * @throws kind `precondition` with a reason that operators understand.
 */
export async function prepareVirtualRange(cidr: string, directory: string): Promise<void> {
  const recorded = readRecord(directory);
  if (recorded !== undefined && recorded !== cidr) await removeVirtualRange(directory);
  const plan = planRoute(cidr, await listRoutes());
  if (plan.kind === 'ready') return;
  if (plan.kind === 'refuse') throw new CloudlessError('precondition', plan.reason);
  // First the record: a route without a record would stay after a reset.
  writeFileSync(join(directory, RECORD_FILE), cidr, { mode: 0o600 });
  try {
    await callIp(['route', 'add', 'local', cidr, 'dev', 'lo']);
  } catch (cause) {
    if (errorMessageOf(cause).includes('File exists')) return; // another agent was faster
    rmSync(join(directory, RECORD_FILE), { force: true });
    throw new CloudlessError(
      'precondition',
      `virtual addresses need a route on this machine, which only root or CAP_NET_ADMIN may add: run the agent as root, run once: ip route add local ${cidr} dev lo, or start the coordinators with --service-cidr 127.64.0.0/16`,
      { cause },
    );
  }
}

/** Removes the route that {@link prepareVirtualRange} has added, if it has. Never rejects. */
export async function removeVirtualRange(directory: string): Promise<void> {
  const cidr = readRecord(directory);
  if (cidr === undefined) return;
  await callIp(['route', 'del', 'local', cidr, 'dev', 'lo']).catch(() => undefined);
  rmSync(join(directory, RECORD_FILE), { force: true });
}

function readRecord(directory: string): string | undefined {
  const file = join(directory, RECORD_FILE);
  return existsSync(file) ? readFileSync(file, 'utf8') : undefined;
}

async function listRoutes(): Promise<readonly MachineRoute[]> {
  const { stdout } = await callIp(['-j', '-4', 'route', 'show', 'table', 'all']).catch(
    (cause: unknown) => {
      throw new CloudlessError('precondition', 'the routes of this machine cannot be listed', {
        cause,
      });
    },
  );
  return stdout.trim() === '' ? [] : (JSON.parse(stdout) as readonly MachineRoute[]);
}

function callIp(args: readonly string[]): Promise<{ readonly stdout: string }> {
  const program = IP_PROGRAMS.find((path) => existsSync(path));
  if (process.platform !== 'linux' || program === undefined)
    throw new CloudlessError(
      'precondition',
      'virtual addresses need Linux with the program ip (package iproute2)',
    );
  return run(program, [...args], { timeout: CALL_TIMEOUT_MS, env: {} });
}
