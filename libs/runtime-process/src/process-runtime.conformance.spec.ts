import { describeContainerRuntime } from '@cloudless/runtime/conformance';
import { openRealMachine } from './testing/real-machine.js';

describeContainerRuntime('the process runtime', {
  open: () => openRealMachine(),
  unknownCommand: ['no-such-executable'],
  unexecutableCommand: ['/etc/passwd'],
  rotatingLines: 5_000,
});
