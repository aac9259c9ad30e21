import { describe, it } from '@jest/globals';
import { describeContainerRuntime } from '@cloudless/runtime/conformance';
import { openRealCriMachine, WHY_NOT } from './testing/real-cri-machine.js';

if (WHY_NOT === undefined) {
  describeContainerRuntime('the CRI runtime', {
    open: () => openRealCriMachine(),
    unknownCommand: ['no-such-executable'],
    unexecutableCommand: ['/etc/passwd'],
    rotatingLines: 3_000,
  });
} else {
  describe('the CRI runtime as a container runtime', () => {
    it.skip(`needs a container runtime: ${WHY_NOT}`, () => undefined);
  });
}
