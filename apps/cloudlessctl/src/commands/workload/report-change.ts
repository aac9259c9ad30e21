import type { Command } from 'commander';
import { WorkloadSchema } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatWorkloadName, waitUntilSettled } from '../../wait/wait-workload.js';
import { hasFlag } from '../options.js';

/** Adds `--wait`. */
export function addWaitOption(command: Command): Command {
  return command.option('--wait', 'wait until the change is complete, at most 10m or --timeout');
}

/**
 * Prints the status line `workload <name>: <change>`, and the workload with JSON or YAML output.
 * With `--wait`, waits until the change is complete.
 * @param change - The change, for example `created`.
 */
export async function reportChange(
  invocation: Invocation,
  workload: Workload,
  change: string,
): Promise<void> {
  const { session } = invocation;
  await session.printStatus(`${formatWorkloadName(workload)}: ${change}`);
  const final = hasFlag(invocation, 'wait') ? await waitUntilSettled(session, workload) : workload;
  if (session.isStructured) await session.printValue(toMessageJson(WorkloadSchema, final));
}
