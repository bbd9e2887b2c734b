//! Arguments for the settings file and the price of a GPU-hour, for the commands that use them.

use std::path::PathBuf;

use clap::Args;
use xpu_model::finding::{PRICE, Price};
use xpu_tui::config::Config;

use super::UsageError;

/// Display order of these options: after a command's own options, before --help.
const LAST: usize = 900;

#[derive(Clone, Debug, Default, Args)]
pub struct SettingsArgs {
    /// Read the settings from this file [default: `XPU_TOP_CONFIG`, else ~/.config/xpu-top/config.toml if there is one]
    #[arg(long, value_name = "FILE", display_order = LAST)]
    pub config: Option<PathBuf>,
}

impl SettingsArgs {
    /// The user's settings.
    pub fn read(&self) -> Result<Config, UsageError> {
        Ok(Config::find(self.config.as_deref())?)
    }
}

/// The settings, and a price that overrides theirs.
#[derive(Clone, Debug, Default, Args)]
pub struct PricedArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Price of a GPU-hour, `2.5` or `2.5 EUR`: lost GPU-hours are also reported in money [default: `XPU_TOP_GPU_HOUR_PRICE`, else from the settings]
    #[arg(long, value_name = "PRICE", display_order = LAST)]
    pub gpu_hour_price: Option<Price>,
}

impl PricedArgs {
    /// The user's settings, with the price from the command line, else from the environment.
    pub fn read(&self) -> Result<Config, UsageError> {
        let config = self.settings.read()?;
        let price = self.named()?.or(config.price);
        Ok(Config { price, ..config })
    }

    /// The price from the command line, else from the environment, else from the settings.
    pub fn price(&self) -> Result<Option<Price>, UsageError> {
        Ok(self.read()?.price)
    }

    fn named(&self) -> Result<Option<Price>, UsageError> {
        let named =
            std::env::var(PRICE).ok().filter(|text| self.gpu_hour_price.is_none() && !text.is_empty());
        let price = named.map(|text| text.parse::<Price>()).transpose();
        let price = price.map_err(|what| UsageError::Value(format!("{PRICE}: {what}")))?;
        Ok(self.gpu_hour_price.or(price))
    }
}
