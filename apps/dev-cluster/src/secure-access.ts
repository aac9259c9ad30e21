import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CloudlessError } from '@cloudless/base';
import { makeDirectory } from '@cloudless/app-kit';
import type { Guard } from './guard.js';
import { runCommand, toEnvironment } from './run-command.js';

/** Files with the credentials of the user and of the agents of a cluster with TLS. */
export interface SecureAccess {
  /** Configuration file of cloudlessctl with the identity of an administrator. */
  readonly configFile: string;
  /** File with a join token for the agents. */
  readonly joinTokenFile: string;
  /** Root certificates that clients trust, in PEM. */
  readonly bundleFile: string;
  /** Token of the first administrator. */
  readonly adminTokenFile: string;
}

/** Name of the context in the configuration file. */
const CONTEXT = 'dev-cluster';
/** The agents join within seconds, also on a busy machine. */
const JOIN_TOKEN_LIFETIME = '1h';

/**
 * Logs in as the first administrator, and creates a join token. No token is in an argument list.
 * @param options - `coordinatorDir`: data directory of the coordinator. `dataDir`: directory for the
 *   files of the result. `agents`: number of agents that join.
 * @throws {@link CloudlessError} with the output of the command that failed.
 */
export async function openSecureAccess(options: {
  readonly url: string;
  readonly coordinatorDir: string;
  readonly dataDir: string;
  readonly agents: number;
  readonly guard: Guard;
  readonly signal: AbortSignal;
}): Promise<SecureAccess> {
  const { url, coordinatorDir, dataDir, agents } = options;
  const access = {
    configFile: join(dataDir, 'cloudlessctl', 'config.yaml'),
    joinTokenFile: join(dataDir, 'join-token'),
    bundleFile: join(dataDir, 'ca.crt'),
    adminTokenFile: join(coordinatorDir, 'identity', 'admin.credential'),
  };
  await makeDirectory(join(dataDir, 'cloudlessctl'), 0o700);
  const run = (...args: readonly string[]) => runOrFail(args, access.configFile, options);
  await run('login', url, '--token-file', access.adminTokenFile, '--name', CONTEXT);
  await writeFile(access.bundleFile, await run('admin', 'ca', '--pem'));
  await rm(access.joinTokenFile, { force: true });
  await run(
    ...['token', 'create', '--uses', String(Math.max(1, agents))],
    ...['--lifetime', JOIN_TOKEN_LIFETIME, '--description', 'agents of dev-cluster'],
    ...['--output-file', access.joinTokenFile],
  );
  return access;
}

/** Runs a command and returns its standard output. */
async function runOrFail(
  args: readonly string[],
  configFile: string,
  { guard, signal }: { readonly guard: Guard; readonly signal: AbortSignal },
): Promise<string> {
  const output = { stdout: '', stderr: '' };
  const onText = (text: string, stream: 'stdout' | 'stderr'): void => void (output[stream] += text);
  const code = await runCommand(args, toEnvironment(configFile), {
    guard,
    signal,
    output: 'pipe',
    onText,
  });
  if (code !== 0)
    throw new CloudlessError(
      'internal',
      `cloudlessctl ${args[0] ?? ''} ended with ${code ?? 'a signal'}: ${output.stderr.trim()}`,
    );
  return output.stdout;
}
