import type { Invocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import type { WorkloadName } from '../../names.js';
import { parseWholeNumber } from '../../flags/flag-values.js';
import { MAX_REPLICAS } from '../../quantity.js';
import { getTextOption, requireOperand, requireOperands } from '../options.js';
import { readOverride } from '../plan/override-option.js';
import { changeWorkloads } from './report-change.js';
import { selectWorkloads } from './select-workloads.js';

/** A number of replicas, and the workloads that get it. */
interface Scaling {
  readonly names: readonly WorkloadName[];
  readonly replicas: number;
}

/**
 * Sets the number of replicas: `scale web 5`, `scale web api --replicas 5` or
 * `scale -l app=shop --replicas 5`.
 */
export async function scaleWorkloads(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  await changeWorkloads(invocation, async () => {
    const override = readOverride(invocation);
    const { names, replicas } = await readScaling(invocation);
    return {
      names,
      plan: (name) => ({ case: 'scale', value: { ...name, replicas, ...override } }),
      call: (request) =>
        session.client.scaleWorkload(
          { ...request, replicas, ...override },
          session.getCallOptions(),
        ),
      describe: () => `scaled to ${replicas}`,
    };
  });
}

/**
 * Reads the number of replicas from `--replicas`, or without this flag from the last operand.
 * @throws {@link CliFailure} with exit code 2 when the number is missing or given twice.
 */
async function readScaling(invocation: Invocation): Promise<Scaling> {
  const { operands } = invocation;
  const flag = getTextOption(invocation, 'replicas');
  if (flag !== undefined) {
    const last = operands.at(-1);
    if (operands.length > 1 && last !== undefined && isNumber(last))
      throw createUsageFailure(
        `the number of replicas is given twice: remove ${last} or --replicas ${flag}`,
      );
    const replicas = parseWholeNumber('--replicas', flag, MAX_REPLICAS);
    return { names: await selectWorkloads(invocation), replicas };
  }
  if (getTextOption(invocation, 'selector') !== undefined)
    throw createUsageFailure('-l needs the number of replicas as --replicas NUMBER');
  requireOperands(invocation, 'workload', 'replicas');
  requireOperand(invocation, 1, 'number of replicas');
  const [text = '', ...names] = [...operands].reverse();
  if (names.length > 1 && !isNumber(text))
    throw createUsageFailure(
      `give the number of replicas: cloudlessctl scale ${operands.join(' ')} --replicas NUMBER`,
    );
  const replicas = parseWholeNumber('the number of replicas', text, MAX_REPLICAS);
  return { names: await selectWorkloads(invocation, names.reverse()), replicas };
}

const isNumber = (text: string): boolean => /^\d+$/.test(text);
