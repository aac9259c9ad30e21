import { WorkloadSchema } from '@cloudless/api';
import type { Workload } from '@cloudless/api';
import type { Invocation } from '../../command-tree.js';
import { toMessageJson } from '../../call/cli-session.js';
import { formatWorkloadName, waitUntilSettled } from '../../wait/wait-workload.js';
import type { WorkloadName } from '../../names.js';
import { changeEach } from '../change-each.js';
import { handleChangeOptions } from '../plan/plan-options.js';
import type { ChangeInit } from '../plan/predict-changes.js';
import { hasFlag } from '../options.js';
import { getWaitOptions } from '../wait-options.js';
import { printWorkloads } from './list-workloads.js';

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
  const final = hasFlag(invocation, 'wait')
    ? await waitUntilSettled(session, workload, getWaitOptions(invocation))
    : workload;
  if (session.isStructured) await session.printValue(toMessageJson(WorkloadSchema, final));
}

/** The change that {@link changeWorkloads} makes. */
export interface WorkloadChange {
  readonly names: readonly WorkloadName[];
  /** Returns the change of one workload for its prediction. */
  plan(name: WorkloadName): NonNullable<ChangeInit['change']>;
  /** Makes the change with one call. */
  call(request: WorkloadName & { readonly requestId: string }): Promise<Workload>;
  /** Returns the change for the status line, for example `scaled to 3`. */
  describe(workload: Workload): string | Promise<string>;
}

/**
 * Makes the same change of one or several workloads, after {@link handleChangeOptions}, and prints
 * a status line for each. With `--wait`, then waits until all changes are complete. In JSON or
 * YAML, one workload is printed as an object, several as a list.
 * @param readChange - Reads the operands and flags. Not called with `--plan-id`.
 * @throws {@link CliFailure} with the exit code of the first change that failed, after all others.
 */
export async function changeWorkloads(
  invocation: Invocation,
  readChange: () => Promise<WorkloadChange>,
): Promise<void> {
  const { session } = invocation;
  let reading: Promise<WorkloadChange> | undefined;
  const createChanges = async () => {
    const { names, plan } = await (reading ??= readChange());
    return names.map((name) => ({ change: plan(name) }));
  };
  if (await handleChangeOptions(invocation, createChanges)) return;
  const { names, call, describe } = await (reading ??= readChange());
  const changed = await changeEach(session, names, {
    describe: formatWorkloadName,
    change: async (name, requestId) => {
      const workload = await call({ ...name, requestId });
      await session.printStatus(`${formatWorkloadName(workload)}: ${await describe(workload)}`);
      return workload;
    },
  });
  const settled = hasFlag(invocation, 'wait')
    ? await changeEach<Workload, Workload>(session, changed.results, {
        describe: formatWorkloadName,
        change: (workload) => waitUntilSettled(session, workload, getWaitOptions(invocation)),
      })
    : changed;
  const [only] = settled.results;
  if (session.isStructured && names.length === 1 && only !== undefined)
    await session.printValue(toMessageJson(WorkloadSchema, only));
  else if (session.isStructured) await printWorkloads(session, settled.results);
  changed.throwFailure();
  settled.throwFailure();
}
