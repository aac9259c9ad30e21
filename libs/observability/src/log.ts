import { closeSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { CloudlessError, type Log, type LogFields } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/system';
import winston from 'winston';
import { toJsonLine, toPrettyLine, type LogLevel, type LogLine } from './format.js';

/** What {@link createLog} needs. */
export interface LogOptions {
  /** Lines that matter less are dropped. */
  readonly level: LogLevel;
  /** `json` for machines, `pretty` for a terminal. A file always gets JSON. */
  readonly format: 'json' | 'pretty';
  /** The first field of every line; a child may say another one. */
  readonly component: string;
  /** Where lines go; default standard output; `null` for nowhere but the file. */
  readonly stream?: NodeJS.WritableStream | null;
  /** Also keep the lines in this file, mode 0600, with 5 older ones of 10 MiB each beside it. */
  readonly file?: string;
  /** Milliseconds since the Unix epoch, for `time`; default the machine's clock. */
  readonly wallTime?: () => number;
  /**
   * Fields of every line, asked for when it is written, as the trace that runs then; those of the
   * line win.
   */
  readonly moment?: () => LogFields;
}

/** A log with an end. */
export interface ClosableLog extends Log {
  /** Resolves when every line is written, or cannot be; later lines are dropped. */
  close(): Promise<void>;
}

const MAX_FILE_BYTES = 10 * 1024 * 1024;
const MAX_FILES = 6;

/**
 * Creates a log on winston. A child's field replaces the parent's of the same name, a line's those
 * of both; a field may have any name, also `message`; errors among the fields keep their causes;
 * secrets are left out (`toSafeFields`). A stream or file that fails, as standard output does when
 * its reader has gone, loses its lines and nothing else.
 * @throws CloudlessError `precondition` when the file cannot be opened.
 */
export function createLog(options: LogOptions): ClosableLog {
  const {
    level,
    format,
    component,
    stream = process.stdout,
    file,
    wallTime = Date.now,
    moment = () => ({}),
  } = options;
  const transports: winston.transport[] = [];
  if (stream !== null) transports.push(streamTransport(stream, format));
  if (file !== undefined) transports.push(fileTransport(file));
  const logger = winston.createLogger({
    level,
    levels: LEVELS,
    transports,
    silent: transports.length === 0,
  });
  logger.on('error', ignore);
  const write = (line: LogLine): void => {
    // The fields travel as one value, and each transport's format unfolds them: winston never sees
    // their names.
    if (!logger.writableEnded && logger.isLevelEnabled(line.level))
      logger.log({ level: line.level, message: line.message, line });
  };
  const close = async (): Promise<void> => {
    if (logger.writableEnded) return;
    const finished = new Promise<void>((resolve) => logger.once('finish', () => resolve()));
    const flushed = transports.map(
      (transport) =>
        new Promise<void>((resolve) =>
          transport.once('finish', () => resolve()).once('error', () => resolve()),
        ),
    );
    logger.end();
    await Promise.all([finished, ...flushed]);
  };
  return Object.assign(new WinstonLog(write, { component }, wallTime, moment), { close });
}

/** As npm's, without the levels we do not have. */
const LEVELS: Record<LogLevel, number> = { error: 0, warn: 1, info: 2, debug: 3 };

class WinstonLog implements Log {
  constructor(
    private readonly write: (line: LogLine) => void,
    private readonly base: LogFields,
    private readonly wallTime: () => number,
    private readonly moment: () => LogFields,
  ) {}

  error(message: string, fields?: LogFields): void {
    this.put('error', message, fields);
  }

  warn(message: string, fields?: LogFields): void {
    this.put('warn', message, fields);
  }

  info(message: string, fields?: LogFields): void {
    this.put('info', message, fields);
  }

  debug(message: string, fields?: LogFields): void {
    this.put('debug', message, fields);
  }

  child(fields: LogFields): Log {
    return new WinstonLog(this.write, { ...this.base, ...fields }, this.wallTime, this.moment);
  }

  private put(level: LogLevel, message: string, fields: LogFields = {}): void {
    this.write({
      level,
      message,
      timeMs: this.wallTime(),
      fields: { ...this.moment(), ...this.base, ...fields },
    });
  }
}

const ignore = (): void => undefined;

/** Winston wants a format that puts the text under this symbol. */
const MESSAGE = Symbol.for('message');

function formatWith(toText: (line: LogLine) => string): winston.Logform.Format {
  return winston.format((info) => {
    const { line } = info as unknown as { readonly line: LogLine };
    return { ...info, [MESSAGE]: toText(line) };
  })();
}

function streamTransport(
  stream: NodeJS.WritableStream,
  format: 'json' | 'pretty',
): winston.transport {
  stream.on('error', ignore); // EPIPE of a closed standard output would end the process
  return new winston.transports.Stream({
    stream,
    eol: '\n',
    format: formatWith(format === 'json' ? toJsonLine : toPrettyLine),
  });
}

function fileTransport(file: string): winston.transport {
  try {
    makeDirectorySync(dirname(file), 0o700);
    closeSync(openSync(file, 'a', 0o600));
  } catch (cause) {
    throw new CloudlessError(
      'precondition',
      `cannot write the log file ${file}; choose another or make its folder writable`,
      {
        cause,
      },
    );
  }
  const options = { flags: 'a', mode: 0o600 };
  const transport = new winston.transports.File({
    filename: file,
    maxsize: MAX_FILE_BYTES,
    maxFiles: MAX_FILES,
    eol: '\n',
    tailable: true,
    options,
    format: formatWith(toJsonLine),
  });
  transport.on('error', ignore);
  return transport;
}
