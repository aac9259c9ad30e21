import { closeSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import winston from 'winston';
import { CloudlessError, type Log, type LogFields } from '@cloudless/base';
import { makeDirectorySync } from '@cloudless/app-kit';
import type { LogStyle } from './log-style.js';
import { toJsonLine, toPrettyLine, type LogLevel, type LogEntry } from './format.js';

/** What a log writes, and where. */
export interface LogOptions {
  /** Least severe level that is written. */
  readonly level: LogLevel;
  /** `json` for machines, `pretty` for a terminal. A file always gets JSON. */
  readonly format: 'json' | 'pretty';
  /** Adds colours to the format `pretty`, see `chooseLogStyle`. Default: no colours. */
  readonly colors?: boolean;
  /** The first field of every line. A child log may override it. */
  readonly component: string;
  /** Stream to which lines are written; default standard output; `null` for no stream. */
  readonly stream?: NodeJS.WritableStream | null;
  /**
   * File to which lines are written as well, with mode 0600. Rotated at 10 MiB; 5 rotated files are
   * kept. Default: no file.
   */
  readonly file?: string;
  /** Returns the time of a line, milliseconds since the Unix epoch; default the system clock. */
  readonly wallTime?: () => number;
  /**
   * Returns fields for each line at the time of the call, such as the current trace id. Fields of
   * the line and of the log override these fields.
   */
  readonly contextFields?: () => LogFields;
}

/** A log that can be closed. */
export interface ClosableLog extends Log {
  /** Resolves when every line is written or lost. Later lines are dropped. */
  close(): Promise<void>;
}

const MAX_FILE_BYTES = 10 * 1024 * 1024;
/** The current file and five rotated files. */
const MAX_FILES = 6;

/**
 * Creates a log on winston. Fields of a line override the fields of the child log, and these
 * override the fields of the parent. Any field name is allowed, also `message`. Errors among the
 * fields keep their causes; secrets are redacted (`toSafeFields`). A stream or file that fails,
 * such as a standard output without a reader, loses lines but has no other effect.
 * @throws kind `precondition` when the file cannot be opened.
 * @example const log = createLog({ level: 'info', format: 'json', component: 'coordinator' });
 *   log.child({ workloadId: '5f' }).info('rollout advanced', { creates: 1 });
 */
export function createLog(options: LogOptions): ClosableLog {
  const {
    level,
    format,
    colors = false,
    component,
    stream = process.stdout,
    file,
    wallTime = Date.now,
    contextFields = () => ({}),
  } = options;
  const transports: winston.transport[] = [];
  if (stream !== null) transports.push(createStreamTransport(stream, { format, colors }));
  if (file !== undefined) transports.push(createFileTransport(file));
  const logger = winston.createLogger({
    level,
    levels: LEVELS,
    transports,
    silent: transports.length === 0,
  });
  logger.on('error', ignoreError);
  const write = (line: LogEntry): void => {
    // The line is passed as one value, which the format of each transport converts to text, so that
    // winston cannot mistake field names for its own.
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
  return Object.assign(new WinstonLog(write, { component }, wallTime, contextFields), { close });
}

/** Severity of each level, as winston expects: 0 is the most severe. */
const LEVELS: Record<LogLevel, number> = { error: 0, warn: 1, info: 2, debug: 3 };

class WinstonLog implements Log {
  constructor(
    private readonly write: (line: LogEntry) => void,
    private readonly baseFields: LogFields,
    private readonly wallTime: () => number,
    private readonly contextFields: () => LogFields,
  ) {}

  error(message: string, fields?: LogFields): void {
    this.writeLine('error', message, fields);
  }

  warn(message: string, fields?: LogFields): void {
    this.writeLine('warn', message, fields);
  }

  info(message: string, fields?: LogFields): void {
    this.writeLine('info', message, fields);
  }

  debug(message: string, fields?: LogFields): void {
    this.writeLine('debug', message, fields);
  }

  child(fields: LogFields): Log {
    return new WinstonLog(
      this.write,
      { ...this.baseFields, ...fields },
      this.wallTime,
      this.contextFields,
    );
  }

  private writeLine(level: LogLevel, message: string, fields: LogFields = {}): void {
    this.write({
      level,
      message,
      timeMs: this.wallTime(),
      fields: { ...this.contextFields(), ...this.baseFields, ...fields },
    });
  }
}

const ignoreError = (): void => undefined;

/** The symbol under which winston expects the formatted text. */
const MESSAGE = Symbol.for('message');

function formatWith(toText: (line: LogEntry) => string): winston.Logform.Format {
  return winston.format((info) => {
    const { line } = info as unknown as { readonly line: LogEntry };
    return { ...info, [MESSAGE]: toText(line) };
  })();
}

function createStreamTransport(
  stream: NodeJS.WritableStream,
  { format, colors }: LogStyle,
): winston.transport {
  // Without a listener, EPIPE of a closed standard output would end the process.
  stream.on('error', ignoreError);
  return new winston.transports.Stream({
    stream,
    eol: '\n',
    format: formatWith(format === 'json' ? toJsonLine : (line) => toPrettyLine(line, { colors })),
  });
}

function createFileTransport(file: string): winston.transport {
  try {
    makeDirectorySync(dirname(file), 0o700);
    closeSync(openSync(file, 'a', 0o600));
  } catch (cause) {
    throw new CloudlessError(
      'precondition',
      `cannot write the log file ${file}; choose another file or make its directory writable`,
      { cause },
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
  transport.on('error', ignoreError);
  return transport;
}
