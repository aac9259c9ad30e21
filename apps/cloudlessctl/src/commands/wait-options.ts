import type { Command } from 'commander';
import type { Invocation } from '../command-tree.js';
import { WAIT_CAPACITY_TEXT } from '../wait/refusal-check.js';
import type { WaitOptions } from '../wait/wait-workload.js';
import { hasFlag } from './options.js';

/** Adds `--wait` and `--wait-capacity`. */
export function addWaitOption(command: Command): Command {
  return command
    .option('--wait', 'wait until the change is complete, at most 10m or --timeout')
    .option('--wait-capacity', WAIT_CAPACITY_TEXT);
}

/** Returns the options of a wait that the command line gives. */
export function getWaitOptions(invocation: Invocation): WaitOptions {
  return { waitCapacity: hasFlag(invocation, 'waitCapacity') };
}
