// The code of the agent that `agent-command.ts` loads after it has started the network proxy. It is
// a bundle of its own: classes of the two bundles are different, so no error may pass from here to
// the other bundle, where it would have lost its kind.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { errorFields, errorReasonOf, StoppedError, type LogFields } from '@cloudless/base';
import { chooseLogStyle, createLog, noTracing, startTracing } from '@cloudless/observability';
import { describeFailure, EXIT_USAGE } from '@cloudless/app-kit/settings';
import { BUILD, READY_MESSAGES, systemClock, VERSION } from '@cloudless/app-kit';
import { IDENTITY_FOLDER } from './identity/identity-directory.js';
import { proxyCommand, supervisorCommand } from './own-commands.js';
import { readReplicaFilesPlace } from './replica-files/open-replica-files.js';
import { resetAgent } from './reset.js';
import { runAgent } from './run-agent.js';
import { runToExitCode } from './run-to-exit-code.js';
import type { BegunAgent } from './start-agent.js';

/**
 * Runs an agent until a stop signal, or until it cannot work. A failure goes to standard error.
 * @returns The exit code.
 */
export async function runFullAgent(begun: BegunAgent): Promise<number> {
  const { config, stopped } = begun;
  let tracing = noTracing;
  const moment = (): LogFields => tracing.getLogFields();
  const log = createLog({
    level: config.logLevel,
    ...chooseLogStyle(config.logFormat, process.stdout, process.env),
    component: 'agent',
    contextFields: moment,
  }).child({ nodeId: config.name });
  try {
    const running = await runAgent(begun, {
      ...{ log, supervisorCommand, proxyCommand },
      startTracing: async () =>
        (tracing = await startTracing({
          endpoint: config.otlpEndpoint,
          service: 'cloudless-agent',
          version: VERSION,
          instance: config.name,
          clock: systemClock,
          log: log.child({ component: 'traces' }),
        })),
      replicaFilesPlace: readReplicaFilesPlace(process.env),
    });
    begun.onReady();
    log.info(READY_MESSAGES.agent, {
      address: running.url?.replace(/^https?:\/\//, ''),
      opsUrl: running.opsUrl,
      dataDir: config.dataDir,
      runtimes: running.runtimes.names,
      containerRuntime: running.runtimes.containerRuntime,
      containers: running.runtimes.noContainersReason,
      network: running.hasNetwork,
      pid: process.pid,
      version: BUILD,
    });
    const end = await Promise.race([stopped, running.failed]);
    log.info('agent stopping', {
      ...(end instanceof Error ? errorFields(end) : { signal: end }),
      stopWorkloads: config.stopWorkloadsOnExit,
    });
    if (end instanceof Error) {
      await running.close().catch(() => undefined); // logged; the cause of the end says more
      throw end;
    }
    await running.close();
    log.info('agent stopped');
    return 0;
  } catch (reason) {
    if (reason instanceof StoppedError) {
      log.info('agent stopped before it had started');
      return 0;
    }
    const { text, exitCode } = describeFailure('cloudless-agent', reason);
    process.stderr.write(text);
    // A service manager should not start the agent again with a token that is refused.
    return errorReasonOf(reason) === 'INVALID_TOKEN' ? EXIT_USAGE : exitCode;
  } finally {
    await tracing.close();
  }
}

/**
 * Removes an agent from its cluster, see {@link resetAgent}. A failure goes to standard error.
 * @returns The exit code.
 */
export function resetToExitCode(dataDir: string): Promise<number> {
  return runToExitCode('cloudless-agent', async () => {
    const hadIdentity = existsSync(join(dataDir, IDENTITY_FOLDER));
    const volumes = await resetAgent(dataDir, supervisorCommand);
    process.stdout.write(`${dataDir} was reset\n`);
    if (hadIdentity)
      process.stdout.write(
        'the identity was removed: to join again, the agent needs a join token\n',
      );
    if (volumes !== undefined) process.stdout.write(`named volumes are kept in ${volumes}\n`);
    return 0;
  });
}
