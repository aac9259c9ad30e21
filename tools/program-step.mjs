// A step of `npm test` that runs one program, which passes or fails as a whole.
import { reportsViolation } from './jest-step.mjs';

/**
 * Runs a program. When it fails, for example because another program did not start in time, the
 * program is run once more, in the same way: when it passes then, the step is named in the summary
 * as one to mend. A program that has reported a broken invariant, or that hangs, has failed, and is
 * not run again.
 * @param name - of the step.
 * @param run - runs the program, and resolves with its exit code, its `output`, its `errors`, the
 *   `reason` why it ended, and with `hangs` when it had to be ended.
 * @param skipCode - exit code of a program that cannot run here; its errors say why. Default: none.
 * @returns what passed, failed, was skipped, is unsteady and has failed, as a step of jest.
 */
export async function programStep({ name, run, skipCode }) {
  const first = await run();
  if (first.code === 0) return { passed: 1, failed: 0 };
  if (first.code === skipCode) return { passed: 0, failed: 0, skipped: [first.errors.trim()] };
  if (first.hangs || isViolation(first))
    return { passed: 0, failed: 1, failures: [describe(first)] };
  console.log(`${name} failed and is run once more: ${describe(first)}`);
  const second = await run();
  return second.code === 0
    ? { passed: 1, failed: 0, unsteady: [`${name}: ${describe(first)}`] }
    : { passed: 0, failed: 1, failures: [describe(first), describe(second)] };
}

const isViolation = ({ output, errors }) => reportsViolation(`${output}\n${errors}`);

/** The first violation, otherwise the last line of the errors, with the reason of the end. */
function describe({ output, errors, reason }) {
  const lines = `${output}\n${errors}`.split('\n').filter((line) => line.trim() !== '');
  const line =
    lines.find(reportsViolation) ??
    errors
      .split('\n')
      .filter((text) => text.trim() !== '')
      .at(-1) ??
    '';
  return `${reason}${line === '' ? '' : `: ${line.trim().slice(0, 300)}`}`;
}
