import { assertNever } from '@cloudless/base';
import type { LogStream } from '../container-runtime.js';
import type { Behaviour, BehaviourStep } from './behaviour.js';

/**
 * Converts a behaviour to a script for `/bin/sh` (POSIX, also busybox).
 * @param directory - Directory for the files of gates and children: gate `g` opens when
 *   `<directory>/gate-g` exists, child `c` writes its process id to `<directory>/child-c`. Must
 *   exist and must not need quoting.
 */
export function toShellScript(behaviour: Behaviour, directory: string): string {
  return behaviour.map((step) => toShellStep(step, directory)).join('\n');
}

function toShellStep(step: BehaviourStep, directory: string): string {
  switch (step.step) {
    case 'write':
      return `printf '${toOctalEscapes(new TextEncoder().encode(step.text))}'${toRedirect(step.stream)}`;
    case 'writeBytes':
      return `printf '${toOctalEscapes(step.bytes)}'${toRedirect(step.stream)}`;
    case 'fill':
      return `head -c ${step.count} /dev/zero | tr '\\0' '${step.letter}'${toRedirect(step.stream)}`;
    case 'number':
      return `i=${step.from}; while [ $i -le ${step.to} ]; do echo "line $i"${toRedirect(step.stream)}; i=$((i+1)); done`;
    case 'writeEnv':
      return `echo "\${${step.name}-unset}"`;
    case 'copyStdin':
      return 'cat';
    case 'readLine':
      return 'read -r input';
    case 'writeSize':
      return `stty size 2>/dev/null || echo 'no terminal'`;
    case 'ignoreTerm':
      return `trap '' TERM HUP`;
    case 'onTerm':
      return `trap 'echo "${step.line}"; exit ${step.exitCode}' TERM`;
    case 'gate':
      return `until [ -e ${directory}/gate-${step.name} ]; do sleep 0.02; done 2>/dev/null`;
    case 'child':
      return `sleep 3600 & echo $! > ${directory}/child-${step.name}.new; mv ${directory}/child-${step.name}.new ${directory}/child-${step.name}`;
    case 'hold':
      // The redirection hides the message of the shell about the end of its child.
      return 'while :; do sleep 3600 & wait $!; done 2>/dev/null';
    case 'exit':
      return `exit ${step.code}`;
    case 'die':
      return 'kill -9 $$';
    default:
      return assertNever(step);
  }
}

function toRedirect(stream: LogStream): string {
  return stream === 'stderr' ? ' >&2' : '';
}

function toOctalEscapes(bytes: ArrayLike<number>): string {
  return Array.from(bytes, (byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
}
